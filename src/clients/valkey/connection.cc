#include "valkey_client/connection.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <system_error>
#include <utility>

#include "endpoint/resolve.h"
#include "endpoint/socket.h"

namespace hierlock::valkey {

namespace {

constexpr const char* check_place = ". Does the server run, and are the host and the port of the URL right?";

constexpr const char* plain_advice = ". If its port is not for TLS, tls=off connects without it";

std::string words_of(int error) { return std::system_category().message(error); }

Reply copy(const redisReply& from) {
  Reply reply;
  switch (from.type) {
    case REDIS_REPLY_INTEGER:
      reply.kind = Reply::Kind::number;
      reply.number = from.integer;
      break;
    case REDIS_REPLY_STRING:
    case REDIS_REPLY_STATUS:
    case REDIS_REPLY_ERROR:
      reply.kind = from.type == REDIS_REPLY_ERROR ? Reply::Kind::error : Reply::Kind::text;
      reply.text.assign(from.str, static_cast<std::size_t>(from.len));
      break;
    case REDIS_REPLY_ARRAY:
      reply.kind = Reply::Kind::array;
      for (std::size_t i = 0; i < from.elements; ++i) reply.items.push_back(copy(*from.element[i]));
      break;
    default:
      break;
  }
  return reply;
}

union SocketAddress {
  sockaddr any;
  sockaddr_in four;
  sockaddr_in6 six;
  sockaddr_un local;
};

socklen_t address_of(const std::string& host, unsigned port, SocketAddress& address) {
  address = {};
  if (inet_pton(AF_INET, host.c_str(), &address.four.sin_addr) == 1) {
    address.four.sin_family = AF_INET;
    address.four.sin_port = htons(static_cast<std::uint16_t>(port));
    return sizeof address.four;
  }
  inet_pton(AF_INET6, host.c_str(), &address.six.sin6_addr);
  address.six.sin6_family = AF_INET6;
  address.six.sin6_port = htons(static_cast<std::uint16_t>(port));
  return sizeof address.six;
}

std::string tls_error() {
  char text[256] = "the server does not speak TLS, or hung up";
  if (const unsigned long code = ERR_get_error(); code != 0) ERR_error_string_n(code, text, sizeof text);
  return text;
}

// What to do about a certificate that was refused.
std::string tls_advice(long verdict, const Address& address) {
  if (verdict == X509_V_ERR_HOSTNAME_MISMATCH || verdict == X509_V_ERR_IP_ADDRESS_MISMATCH) {
    return ". The certificate is not for " + address.host + ": use a name that it has";
  }
  if (verdict == X509_V_ERR_CERT_HAS_EXPIRED) return ". The server needs a new certificate";
  return address.ca.empty() ? ". Name the certificate of its signer by ca=FILE"
                            : ". The file that ca= names does not have its signer";
}

}  // namespace

Error error_of(const Reply& reply, const std::string& doing) {
  const auto error = [&](ErrorKind kind, const std::string& advice) {
    return Error(kind, "cannot " + doing + ": " + reply.text + advice);
  };
  if (reply.is_error("NOAUTH") || reply.is_error("WRONGPASS")) {
    return error(ErrorKind::denied,
                 ". Check the user and the password (in a URL with %HH for special characters, or by password_file= or "
                 "password_env=)");
  }
  if (reply.is_error("NOPERM") || reply.text.find("ACL failure") != reply.text.npos ||
      reply.text.find("can't run this command") != reply.text.npos) {
    return error(ErrorKind::denied, ". docs/valkey.md lists the rights that are needed");
  }
  if (reply.is_error("READONLY")) {
    return error(ErrorKind::unsafe_topology, ". This is a replica: connect to the primary");
  }
  if (reply.is_error("CLUSTERDOWN")) {
    return error(ErrorKind::unavailable, ". Some slots have no primary: start it, or fail over to its replica");
  }
  if (reply.is_error("TRYAGAIN") || reply.text.find("non local key") != reply.text.npos) {
    return error(ErrorKind::unavailable, ". The slot of this lock is being moved to another node: try again");
  }
  if (reply.is_error("MOVED") || reply.is_error("ASK")) {
    return error(ErrorKind::unavailable, ". The nodes of the cluster do not agree where this lock is: try again");
  }
  if (reply.text.find("max number of clients") != reply.text.npos) {
    return error(ErrorKind::exhausted, ". Raise maxclients, or lower connections= in the URLs");
  }
  return error(ErrorKind::unavailable, "");
}

// redisFormatCommandArgv() does the same with sprintf(), which took a third of the client's time for an acquire.
void Request::line(char kind, std::size_t number) {
  char digits[24];
  bytes_ += kind;
  bytes_.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
  bytes_ += "\r\n";
}

void Request::begin(std::size_t words) {
  if (bytes_.empty()) bytes_.reserve(512);
  line('*', words);
  ++commands_;
}

void Request::word(std::string_view text) {
  line('$', text.size());
  bytes_ += text;
  bytes_ += "\r\n";
}

Connection::Connection(const Address& address, WaitLimit& limit) : place_(address.place()) {
  try {
    open_socket(address, limit);
    if (address.tls != Tls::off) {
      encrypt(address, limit);
    } else {
      brief_.prepare(socket_);
      if (brief_.possible()) fcntl(socket_, F_SETFL, fcntl(socket_, F_GETFL) & ~O_NONBLOCK);
    }
    reader_ = redisReaderCreate();
    if (reader_ == nullptr) throw std::bad_alloc();
    if (!address.user.empty() || !address.password.empty()) {
      Command login{"AUTH"};
      if (!address.user.empty()) login.push_back(address.user);
      login.push_back(address.password);
      ask(login, "log in at " + place_, limit);
    }
    if (!address.database.empty()) ask({"SELECT", address.database}, "use database " + address.database, limit);
  } catch (...) {
    close();
    throw;
  }
}

Connection::~Connection() { close(); }

void Connection::close() noexcept {
  if (tls_ != nullptr) SSL_free(tls_);
  if (context_ != nullptr) SSL_CTX_free(context_);
  if (reader_ != nullptr) redisReaderFree(reader_);
  if (socket_ >= 0) ::close(socket_);
}

bool Connection::hung_up() const noexcept { return endpoint::has_input(socket_); }

void Connection::fail(const std::string& why) {
  broken_ = true;
  throw Error(ErrorKind::unavailable, place_ + ": " + why + check_place);
}

// False: the limit gave up.
bool Connection::wait(int events, WaitLimit& limit) {
  for (;;) {
    const std::optional<timed::Clock::duration> time = limit.next();
    if (!time) return false;
    if (endpoint::watch(socket_, events, limit.wake(), *time) != 0) return true;
  }
}

void Connection::open_socket(const Address& address, WaitLimit& limit) {
  std::vector<std::string> hosts{""};
  if (address.socket.empty()) hosts = endpoint::resolve(address.host, place_, limit);
  int error = 0;
  for (const std::string& host : hosts) {
    SocketAddress at{};
    socklen_t size = sizeof at.local;
    if (address.socket.empty()) {
      size = address_of(host, address.port, at);
    } else {
      at.local.sun_family = AF_UNIX;
      if (address.socket.size() >= sizeof at.local.sun_path) fail("the name of the socket is too long");
      std::memcpy(at.local.sun_path, address.socket.data(), address.socket.size());
    }
    if (socket_ >= 0) ::close(socket_);
    socket_ = ::socket(at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (socket_ < 0) throw Error(ErrorKind::exhausted, "no socket can be made: " + words_of(errno));
    if (connect(socket_, &at.any, size) == 0) break;
    error = errno;
    if (error != EINPROGRESS) continue;
    if (!wait(endpoint::writable, limit)) fail("it does not answer");
    socklen_t length = sizeof error;
    getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error == 0) break;
  }
  if (error != 0 && error != EINPROGRESS) fail(words_of(error));
  endpoint::look_after(socket_);
  const int on = 1;
  setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void Connection::encrypt(const Address& address, WaitLimit& limit) {
  ERR_clear_error();
  context_ = SSL_CTX_new(TLS_client_method());
  if (context_ == nullptr) throw std::bad_alloc();
  SSL_CTX_set_min_proto_version(context_, TLS1_2_VERSION);
  const bool verify = address.tls == Tls::verify;
  if (verify) {
    SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
    const int loaded = address.ca.empty() ? SSL_CTX_set_default_verify_paths(context_)
                                          : SSL_CTX_load_verify_locations(context_, address.ca.c_str(), nullptr);
    if (loaded != 1) throw Error(ErrorKind::invalid_argument, "ca=" + address.ca + " cannot be read as certificates");
  }
  tls_ = SSL_new(context_);
  if (tls_ == nullptr || SSL_set_fd(tls_, socket_) != 1) throw std::bad_alloc();
  if (verify && !address.host.empty()) {
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls_), address.host.c_str()) != 1) {
      SSL_set1_host(tls_, address.host.c_str());
      // SSL_set_tlsext_host_name() is a macro with an old cast.
      SSL_ctrl(tls_, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, const_cast<char*>(address.host.c_str()));
    }
  }
  for (;;) {
    ERR_clear_error();
    const int done = SSL_connect(tls_);
    if (done == 1) break;
    const int why = SSL_get_error(tls_, done);
    if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) {
      const long verdict = SSL_get_verify_result(tls_);
      throw Error(ErrorKind::denied,
                  "cannot connect to " + place_ + " with TLS: " +
                      (verify && verdict != X509_V_OK ? X509_verify_cert_error_string(verdict) : tls_error()) +
                      (verify && verdict != X509_V_OK ? tls_advice(verdict, address) : plain_advice));
    }
    if (!wait(why == SSL_ERROR_WANT_READ ? endpoint::readable : endpoint::writable, limit)) {
      fail(std::string("it does not answer to TLS") + plain_advice);
    }
  }
  cipher_ = SSL_get_cipher_name(tls_);
}

void Connection::write(std::string_view bytes, WaitLimit& limit) {
  while (!bytes.empty()) {
    int events = endpoint::writable;
    ssize_t sent = 0;
    if (tls_ != nullptr) {
      ERR_clear_error();
      sent = SSL_write(tls_, bytes.data(), static_cast<int>(std::min<std::size_t>(bytes.size(), 1 << 20)));
      if (sent <= 0) {
        const int why = SSL_get_error(tls_, static_cast<int>(sent));
        if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) fail("the connection has ended");
        if (why == SSL_ERROR_WANT_READ) events = endpoint::readable;
      }
    } else {
      sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) fail("the connection has ended");
    }
    if (sent > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (!wait(events, limit)) {
      fail("it does not answer");
    }
  }
}

// False: the limit gave up.
bool Connection::read_more(WaitLimit& limit) {
  char bytes[16 * 1024];
  // An answer mostly comes at once: see BriefLook.
  const std::optional<timed::Clock::duration> time = brief_.possible() ? limit.next() : std::nullopt;
  bool briefly = time && *time >= endpoint::BriefLook::longest && limit.wake() < 0;
  for (;;) {
    int events = endpoint::readable;
    ssize_t got = 0;
    if (tls_ != nullptr) {
      ERR_clear_error();
      got = SSL_read(tls_, bytes, sizeof bytes);
      if (got <= 0) {
        const int why = SSL_get_error(tls_, static_cast<int>(got));
        if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) fail("the server has closed the connection");
        if (why == SSL_ERROR_WANT_WRITE) events = endpoint::writable;
      }
    } else {
      got = recv(socket_, bytes, sizeof bytes, std::exchange(briefly, false) ? 0 : MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        fail(std::string("the server has closed the connection") +
             (heard_ ? "" : ". If its port is for TLS, write tls=verify or tls=on"));
      }
    }
    if (got > 0) {
      heard_ = true;
      if (redisReaderFeed(reader_, bytes, static_cast<std::size_t>(got)) != REDIS_OK)
        fail("this is no Valkey or Redis");
      return true;
    }
    if (!wait(events, limit)) return false;
  }
}

std::optional<Reply> Connection::receive(WaitLimit& limit) {
  for (;;) {
    void* read = nullptr;
    if (redisReaderGetReply(reader_, &read) != REDIS_OK) fail("this is no Valkey or Redis");
    if (read != nullptr) {
      const std::unique_ptr<void, decltype(&freeReplyObject)> reply(read, freeReplyObject);
      return copy(*static_cast<redisReply*>(read));
    }
    if (!read_more(limit)) return std::nullopt;
  }
}

Reply Connection::call(const Command& command, WaitLimit& limit) { return call_all({&command, 1}, limit).front(); }

std::vector<Reply> Connection::call_all(std::span<const Command> commands, WaitLimit& limit) {
  Request request;
  for (const Command& command : commands) {
    request.begin(command.size());
    for (const std::string& word : command) request.word(word);
  }
  send_all(request, limit);
  return receive_all(request.commands(), limit);
}

std::vector<Reply> Connection::receive_all(std::size_t count, WaitLimit& limit) {
  std::vector<Reply> replies;
  while (replies.size() < count) {
    std::optional<Reply> reply = receive(limit);
    if (!reply) fail("it does not answer");
    replies.push_back(std::move(*reply));
  }
  return replies;
}

Reply Connection::ask(const Command& command, const std::string& doing, WaitLimit& limit) {
  Reply reply = call(command, limit);
  if (reply.kind == Reply::Kind::error) throw error_of(reply, doing);
  return reply;
}

}  // namespace hierlock::valkey
