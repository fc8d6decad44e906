#include "postgres_client/connection.h"

#include <libpq-fe.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "endpoint/resolve.h"
#include "endpoint/socket.h"
#include "postgres_client/error_codes.h"

namespace hierlock::postgres {

namespace {

using endpoint::readable, endpoint::writable;
using Result = std::unique_ptr<PGresult, decltype(&PQclear)>;

std::string trimmed(const char* message) {
  std::string text = message == nullptr ? "" : message;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string field(const PGresult* result, int which) {
  const char* const text = PQresultErrorField(result, which);
  return text == nullptr ? "" : text;
}

// Why a login failed: libpq tells it by its message only.
Error refusal(PGconn* connection, const std::string& place) {
  const std::string message = trimmed(PQerrorMessage(connection));
  const auto says = [&](const char* words) { return message.find(words) != message.npos; };
  const std::string text = "cannot connect to " + place + ": " + message;
  if (says("does not support SSL")) {
    return {ErrorKind::denied, text + ". Set TLS up there, or write tls=off if the way to the server is safe"};
  }
  if (says("certificate") || says("SSL error")) return {ErrorKind::denied, text + ". See tls= and ca= in docs/lab.md"};
  if (says("no encryption") || says("SSL off")) return {ErrorKind::denied, text + ". Does the account demand tls=on?"};
  const bool denied = PQconnectionNeedsPassword(connection) != 0 || says("authentication failed") ||
                      says("permission denied") || says("pg_hba.conf");
  return {denied ? ErrorKind::denied : ErrorKind::unavailable, text};
}

void read_rows(const PGresult* result, Reply& reply) {
  reply.has_rows = true;
  for (int i = 0; i < PQntuples(result); ++i) {
    auto& row = reply.rows.emplace_back();
    for (int j = 0; j < PQnfields(result); ++j) {
      row.push_back(PQgetisnull(result, i, j) != 0
                        ? std::nullopt
                        : std::optional<std::string>(std::in_place, PQgetvalue(result, i, j),
                                                     static_cast<std::size_t>(PQgetlength(result, i, j))));
    }
  }
}

constexpr const char* no_state = "?";  // an error of libpq itself: the connection is gone

Reply reply_of(const PGresult* result) {
  Reply reply;
  switch (PQresultStatus(result)) {
    case PGRES_TUPLES_OK:
      read_rows(result, reply);
      [[fallthrough]];
    case PGRES_COMMAND_OK:
      reply.tag = PQcmdStatus(const_cast<PGresult*>(result));  // libpq takes it so, and changes nothing
      [[fallthrough]];
    case PGRES_EMPTY_QUERY:
      return reply;
    default:
      reply.state = field(result, PG_DIAG_SQLSTATE);
      if (reply.state.empty()) reply.state = no_state;
      reply.message = field(result, PG_DIAG_MESSAGE_PRIMARY);
      reply.raised_by = field(result, PG_DIAG_SOURCE_FUNCTION);
      return reply;
  }
}

// libpq resolves names on the thread that connects, without a limit. So it gets addresses beside the names, which it
// still checks certificates for. Each of several hosts may have several addresses, and a port of its own.
std::map<std::string, std::string> with_addresses(const Address& address, WaitLimit& limit) {
  auto settings = address.settings;
  const auto found = settings.find("host");
  if (found == settings.end() || settings.contains("hostaddr")) return settings;
  const auto port_list = settings.find("port");
  const bool one_port = port_list == settings.end() || port_list->second.find(',') == std::string::npos;
  std::istringstream hosts(found->second), ports(one_port ? "" : port_list->second);
  const auto add = [](std::string& list, bool first, const std::string& more) { list += (first ? "" : ",") + more; };
  std::string names, addresses, their_ports;
  std::string port;
  bool first = true;
  for (std::string host; std::getline(hosts, host, ',');) {
    if (!one_port) std::getline(ports, port, ',');
    const bool socket = host.empty() || host.starts_with('/') || host.starts_with('@');
    for (const std::string& at :
         socket ? std::vector<std::string>{""} : endpoint::resolve(host, address.place, limit)) {
      add(names, first, host);
      add(addresses, first, at);
      add(their_ports, first, port);
      first = false;
    }
  }
  settings["host"] = names;
  settings["hostaddr"] = addresses;
  if (!one_port) settings["port"] = their_ports;
  return settings;
}

}  // namespace

Error error_of(const Reply& reply, const std::string& doing) {
  const std::string text = "cannot " + doing + ": " + reply.message + " (" + reply.state + ")";
  if (reply.state == codes::insufficient_privilege) return {ErrorKind::denied, text};
  if (reply.state == codes::lock_not_available) return {ErrorKind::busy, text};
  if (reply.state == codes::deadlock) return {ErrorKind::deadlock, text};
  if (reply.state == codes::query_canceled) return {ErrorKind::timeout, text};
  if (reply.state == codes::no_such_database) return {ErrorKind::not_provisioned, text};
  if (reply.state == codes::too_many_connections || reply.state == codes::out_of_memory) {
    return {ErrorKind::exhausted, text};
  }
  return {ErrorKind::unavailable, text};
}

Connection::Connection(const Address& address, const std::string& application, WaitLimit& limit)
    : handle_(nullptr, &PQfinish) {
  auto settings = with_addresses(address, limit);
  settings["application_name"] = application;
  settings["client_encoding"] = "UTF8";
  // A session that waits for a lock sends nothing. So the kernel asks whether the server's machine is still there.
  settings["tcp_user_timeout"] = "10000";
  settings["keepalives_idle"] = "5";
  settings["keepalives_interval"] = "2";
  std::vector<const char*> keywords, values;
  for (const auto& [keyword, value] : settings) {
    keywords.push_back(keyword.c_str());
    values.push_back(value.c_str());
  }
  keywords.push_back(nullptr);
  values.push_back(nullptr);
  handle_.reset(PQconnectStartParams(keywords.data(), values.data(), 0));
  if (handle_ == nullptr) throw Error(ErrorKind::exhausted, "no memory for a connection");
  PGconn* const raw = handle_.get();
  if (PQstatus(raw) == CONNECTION_BAD) throw refusal(raw, address.place);
  for (PostgresPollingStatusType next = PGRES_POLLING_WRITING; next != PGRES_POLLING_OK; next = PQconnectPoll(raw)) {
    if (next == PGRES_POLLING_FAILED) throw refusal(raw, address.place);
    if (!wait(next == PGRES_POLLING_READING ? readable : writable, limit)) {
      throw Error(ErrorKind::unavailable,
                  "cannot connect to " + address.place +
                      ": it does not answer. Does the server run, and are the host and the port of the URL right?");
    }
  }
  PQsetNoticeReceiver(
      raw,
      [](void* to, const PGresult* notice) {
        auto& kept = *static_cast<std::vector<std::string>*>(to);
        if (kept.size() < most_kept) kept.push_back(field(notice, PG_DIAG_MESSAGE_PRIMARY));
      },
      &notices_);
  PQsetnonblocking(raw, 1);
  id_ = static_cast<std::uint64_t>(PQbackendPID(raw));
  const char* const version = PQparameterStatus(raw, "server_version");
  version_ = version == nullptr ? "" : version;
  version_.resize(std::min(version_.size(), version_.find(' ')));  // `15.18 (Debian …)`
}

Connection::~Connection() = default;

int Connection::socket() const noexcept { return PQsocket(handle_.get()); }

bool Connection::idle() const noexcept { return !broken_ && PQtransactionStatus(handle_.get()) == PQTRANS_IDLE; }

// False: the limit gave up.
bool Connection::wait(int events, WaitLimit& limit) {
  for (;;) {
    std::optional<Clock::duration> time;
    try {
      time = limit.next();
    } catch (...) {
      broken_ = true;  // the answer is still to come
      throw;
    }
    if (!time) break;
    if (endpoint::watch(socket(), events, limit.wake(), *time) != 0) return true;
  }
  broken_ = true;
  return false;
}

Reply Connection::lost() {
  broken_ = true;
  std::string message = trimmed(PQerrorMessage(handle_.get()));
  if (message.empty()) message = "the server does not answer";
  return {.state = std::string(codes::connection_failure), .message = std::move(message)};
}

Reply Connection::query(const std::string& sql, WaitLimit& limit) { return std::move(query_each(sql, limit).back()); }

std::vector<Reply> Connection::query_each(const std::string& sql, WaitLimit& limit) {
  send(sql);
  return receive(limit);
}

void Connection::send(const std::string& sql) {
  replies_.clear();
  all_replies_ = broken_ || PQsendQuery(handle_.get(), sql.c_str()) == 0;
  if (all_replies_) replies_.push_back(lost());
}

bool Connection::arrives(Clock::duration time) {
  const Clock::time_point end = Clock::now() + time;
  return read_replies([&](int events) {
    const Clock::duration left = end - Clock::now();
    return left > left.zero() && endpoint::watch(socket(), events, -1, left) != 0;
  });
}

std::vector<Reply> Connection::receive(WaitLimit& limit) {
  if (!read_replies([&](int events) { return wait(events, limit); })) replies_.push_back(lost());
  all_replies_ = true;
  return std::exchange(replies_, {});
}

// False: `await` gave up before all of them were there.
bool Connection::read_replies(const std::function<bool(int events)>& await) {
  PGconn* const raw = handle_.get();
  const auto gone = [&] {
    replies_.push_back(lost());
    return all_replies_ = true;
  };
  if (all_replies_) return true;
  // While the server sends notices it may read nothing, so both directions are served.
  for (int unsent = 0; (unsent = PQflush(raw)) != 0;) {
    if (unsent < 0) return gone();
    if (!await(readable | writable)) return false;
    if (PQconsumeInput(raw) == 0) return gone();
  }
  for (;;) {
    while (PQisBusy(raw) != 0) {
      if (!await(readable)) return false;
      if (PQconsumeInput(raw) == 0) return gone();
    }
    const Result result(PQgetResult(raw), &PQclear);
    if (result == nullptr) break;
    const ExecStatusType status = PQresultStatus(result.get());
    if (status == PGRES_COPY_IN || status == PGRES_COPY_OUT || status == PGRES_COPY_BOTH) return gone();
    replies_.push_back(reply_of(result.get()));
  }
  const bool ended = replies_.empty() || replies_.back().state == no_state;
  if (ended || PQstatus(raw) != CONNECTION_OK) return gone();
  return all_replies_ = true;
}

std::vector<Notification> Connection::take_notifications() {
  PGconn* const raw = handle_.get();
  std::vector<Notification> taken;
  if (!broken_) PQconsumeInput(raw);
  while (PGnotify* const one = PQnotifies(raw)) {
    if (taken.size() < most_kept) taken.push_back({one->relname, one->extra});
    PQfreemem(one);
  }
  return taken;
}

Reply Connection::ask(const std::string& sql, WaitLimit& limit) {
  Reply reply = query(sql, limit);
  if (!reply.well()) throw error_of(reply, "use the database");
  return reply;
}

}  // namespace hierlock::postgres
