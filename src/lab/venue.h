// Venue: a URL where scenarios are played one after another, and what they share there.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "lab/database.h"

namespace hierlock::lab {

class Venue {
 public:
  // `keeps`: connections and the schema stay from one scenario to the next. Otherwise each begins with nothing.
  Venue(std::string_view url, bool keeps)
      : Venue(url, keeps, [text = std::string(url)] { return open_database(text); }) {}
  // `open` opens the database.
  Venue(std::string_view url, bool keeps, std::function<std::unique_ptr<Database>()> open)
      : url_(url), keeps_(keeps), open_(std::move(open)) {}

  const std::string& url() const noexcept { return url_; }

  // Opened by the first call. None: it is no SQL engine. Throws as open_database() does.
  Database* database() {
    if (!opened_) database_ = open_();
    opened_ = true;
    return database_.get();
  }
  // A scenario is over, and its sessions are gone.
  void leave() noexcept {
    if (database_ == nullptr) return;
    if (keeps_) {
      database_->leave_room();
    } else {
      database_->clear_room();
    }
  }
  // After something went wrong: the next scenario begins with nothing.
  void close() noexcept {
    database_.reset();
    opened_ = false;
  }

 private:
  const std::string url_;
  const bool keeps_;
  const std::function<std::unique_ptr<Database>()> open_;
  bool opened_ = false;
  std::unique_ptr<Database> database_;
};

// As run() and permute() of lab.h.
Result run(const Scenario& scenario, Venue& venue, const RunOptions& options);
Permuted permute(const Scenario& scenario, Venue& venue, const PermuteOptions& options);

}  // namespace hierlock::lab
