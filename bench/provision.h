// Provisioning a database: hierlock's way beside one INSERT of cross-joined digits, on the same server.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace bench {

// Fills a table of one level again and again, in a table of its own that is gone with this.
class Filling {
 public:
  enum class Way { ours, cross_joins };
  // `url` as `tools/servers env` prints it; `rows` is a power of ten. Throws if the server cannot be used.
  Filling(const std::string& url, std::uint64_t rows, Way way);
  ~Filling();
  Filling(const Filling&) = delete;
  Filling& operator=(const Filling&) = delete;

  // Of one filling, both: asking for the same figure once more fills once more.
  double nanoseconds();
  double bytes();

  // Empty if this build can; otherwise why not.
  static std::string why_not();

 private:
  struct Server;
  void fill();

  const std::unique_ptr<Server> server_;
  const std::uint64_t rows_;
  const Way way_;
  double nanoseconds_ = 0, bytes_ = 0;
  bool time_told_ = true, bytes_told_ = true;
};

}  // namespace bench
