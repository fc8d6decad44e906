// Node: a connection to one server, as the operator.
#pragma once

#include <hiredis/hiredis.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace hierlock::valkey_tests {

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != text.npos; at = end + 1) {
    lines.push_back(text.substr(at, end - at));
  }
  return lines;
}

class Node {
 public:
  // `url`: the operator's.
  Node(std::string name, const std::string& url) : name_(std::move(name)) {
    const std::size_t colon = url.find(':', url.find("//")), at = url.find('@'), end = url.rfind(':');
    password_ = url.substr(colon + 1, at - colon - 1);
    port_ = url.substr(end + 1, url.find('/', end) - end - 1);
  }
  const std::string& name() const { return name_; }
  const std::string& port() const { return port_; }
  const std::string& password() const { return password_; }

  // Items of an array are lines. No answer is an empty text.
  std::string ask(const std::vector<std::string>& words) {
    if (context_ == nullptr || context_->err != 0) {
      context_.reset(redisConnectWithTimeout("127.0.0.1", std::stoi(port_), {5, 0}));
      if (context_ == nullptr || context_->err != 0) return "";
      redisSetTimeout(context_.get(), {20, 0});
      send({"AUTH", "operator", password_});
    }
    return send(words);
  }

 private:
  std::string send(const std::vector<std::string>& words) {
    std::vector<const char*> texts;
    std::vector<std::size_t> sizes;
    for (const std::string& word : words) {
      texts.push_back(word.data());
      sizes.push_back(word.size());
    }
    const std::unique_ptr<redisReply, decltype(&freeReplyObject)> reply(
        static_cast<redisReply*>(
            redisCommandArgv(context_.get(), static_cast<int>(texts.size()), texts.data(), sizes.data())),
        freeReplyObject);
    return reply == nullptr ? "" : text_of(*reply);
  }
  static std::string text_of(const redisReply& reply) {
    if (reply.type == REDIS_REPLY_INTEGER) return std::to_string(reply.integer);
    if (reply.type != REDIS_REPLY_ARRAY) return reply.str == nullptr ? "" : std::string(reply.str, reply.len);
    std::string lines;
    for (std::size_t i = 0; i < reply.elements; ++i) lines += text_of(*reply.element[i]) + "\n";
    return lines;
  }

  std::string name_, password_, port_;
  std::unique_ptr<redisContext, decltype(&redisFree)> context_{nullptr, redisFree};
};

}  // namespace hierlock::valkey_tests
