#include "peer_valkey.h"

#include <stdexcept>

#ifdef HIERLOCK_BENCH_VALKEY
#include <hierlock/valkey.h>
#include <hiredis/hiredis.h>

#include <vector>

namespace bench {

std::string why_no_valkey() { return ""; }
void enable_valkey() { hierlock::valkey::enable(); }

struct ValkeySession::Client {
  redisContext* context = nullptr;
  ~Client() {
    if (context != nullptr) redisFree(context);
  }
};

ValkeySession::ValkeySession(const std::string& url) : client_(std::make_unique<Client>()) {
  const std::size_t user = url.find("://") + 3, password = url.find(':', user) + 1, host = url.find('@', password) + 1,
                    port = url.find(':', host) + 1;
  client_->context = redisConnect(url.substr(host, port - 1 - host).c_str(), std::stoi(url.substr(port)));
  if (client_->context == nullptr || client_->context->err != 0) throw std::runtime_error("valkey: no connection");
  ask({"AUTH", url.substr(user, password - 1 - user), url.substr(password, host - 1 - password)});
  release_ = ask({"SCRIPT", "LOAD",
                  "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"});
}

ValkeySession::~ValkeySession() = default;

std::string ValkeySession::ask(std::initializer_list<std::string_view> command) {
  std::vector<const char*> words;
  std::vector<std::size_t> sizes;
  for (const std::string_view word : command) {
    words.push_back(word.data());
    sizes.push_back(word.size());
  }
  const std::unique_ptr<void, decltype(&freeReplyObject)> answer(
      redisCommandArgv(client_->context, static_cast<int>(words.size()), words.data(), sizes.data()), freeReplyObject);
  const auto* const reply = static_cast<const redisReply*>(answer.get());
  if (reply == nullptr) throw std::runtime_error(std::string("valkey: ") + client_->context->errstr);
  if (reply->type == REDIS_REPLY_INTEGER) return std::to_string(reply->integer);
  const std::string text = reply->str == nullptr ? "" : std::string(reply->str, static_cast<std::size_t>(reply->len));
  if (reply->type == REDIS_REPLY_ERROR) throw std::runtime_error("valkey: " + text);
  return text;
}

void ValkeySession::pair_by_hand() {
  const std::string_view key = "hl:by-hand:u1/a1/r1", token = "0123456789abcdef0123456789abcdef";
  if (ask({"SET", key, token, "NX", "PX", "10000"}) != "OK") throw std::runtime_error("a free lock was not granted");
  if (ask({"EVALSHA", release_, "1", key, token}) != "1") throw std::runtime_error("a lock was not released");
}

double ValkeySession::info(const char* section, std::initializer_list<std::string_view> names) {
  const std::string all = "\n" + ask({"INFO", section});
  double sum = 0;
  for (const std::string_view name : names) {
    const std::size_t at = all.find("\n" + std::string(name) + ":");
    if (at != all.npos) sum += std::stod(all.substr(all.find_first_of("0123456789", at + name.size() + 2)));
  }
  return sum;
}

}  // namespace bench

#else

namespace bench {

struct ValkeySession::Client {};
std::string why_no_valkey() { return "built without valkey"; }
void enable_valkey() { throw std::runtime_error(why_no_valkey()); }
ValkeySession::ValkeySession(const std::string&) { throw std::runtime_error(why_no_valkey()); }
ValkeySession::~ValkeySession() = default;
std::string ValkeySession::ask(std::initializer_list<std::string_view>) { return ""; }
void ValkeySession::pair_by_hand() {}
double ValkeySession::info(const char*, std::initializer_list<std::string_view>) { return 0; }

}  // namespace bench

#endif
