// Relay: a process that stands between clients and a server. It counts what is said, and may be far away.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "crowd.h"
#include "process.h"

namespace bench {

class Relay {
 public:
  // Leads to the server of this URL. Bytes arrive `each_way` later. A connection in which the client says
  // `word` is counted apart, from then on.
  explicit Relay(const std::string& server, std::chrono::nanoseconds each_way = {}, std::string word = "");

  // The server's URL, through the relay. Only without TLS can the relay see what is said: add tls=off.
  std::string url() const { return url_; }
  // In both directions, over all connections and over those with the word.
  std::uint64_t bytes() const { return counts_->bytes; }
  std::uint64_t bytes_with_word() const { return counts_->bytes_with_word; }

 private:
  struct Counts {
    std::atomic<std::uint64_t> bytes{0}, bytes_with_word{0};
    std::atomic<unsigned> port{0};
  };
  Shared<Counts> counts_;
  std::string url_;
  ProcessCrowd process_;
};

}  // namespace bench
