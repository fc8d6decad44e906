#include "mysql_client/login.h"

#include <mysql.h>
#include <mysql/plugin_auth.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include <hierlock/error.h>

namespace hierlock::mysql {

namespace {

// As in mysql/client_plugin.h, which cannot be included: it needs a header that is not installed with it.
constexpr int authentication_plugin = 2;
constexpr unsigned authentication_interface = 0x0100;
struct AuthenticationPlugin {
  MYSQL_CLIENT_PLUGIN_HEADER
  int (*authenticate)(MYSQL_PLUGIN_VIO*, MYSQL*);
};

constexpr char tls_first[] = "hierlock_tls_first", login_of[] = "hierlock_login";
constexpr unsigned char another_proof = 254;  // the first byte of the packet in which the server asks for one

// The login plugins that are allowed. `mysql_clear_password` always sends the password as it is, and `dialog` asks at
// the terminal. The client library looks for a name anywhere in this text.
constexpr char allowed[] = "mysql_native_password,client_ed25519,parsec,caching_sha2_password,sha256_password";
// The same without the two that encrypt the password by a key which whoever answers sends. They are for connections
// that are encrypted, or that stay on this machine.
constexpr char allowed_in_plain_text[] = "mysql_native_password,client_ed25519,parsec";

// A text of the client library's, which frees it. False: there is no memory.
bool replace(char*& text, const std::string& by) {
  char* const copy = strdup(by.c_str());
  if (copy == nullptr) return false;
  std::free(std::exchange(text, copy));
  return true;
}

int authenticate(MYSQL_PLUGIN_VIO* channel, MYSQL* mysql) {
  void* login = nullptr;
  mysql_get_optionv(mysql, MARIADB_OPT_USERDATA, const_cast<char*>(login_of), &login);
  try {
    return login == nullptr ? CR_ERROR : static_cast<Login*>(login)->proceed(channel, mysql);
  } catch (...) {  // no memory
    return CR_ERROR;
  }
}

// The client library looks for a plugin and loads it in two steps. If two threads load one at the same time, the second
// fails: "it is already loaded". So every look that may load one is under this mutex.
std::mutex& loading() {
  static auto& mutex = *new std::mutex;  // also for threads that outlive main
  return mutex;
}

void make_known(MYSQL* mysql) {
  static AuthenticationPlugin plugin = [] {
    AuthenticationPlugin made{};
    made.type = authentication_plugin;
    made.interface_version = authentication_interface;
    made.name = tls_first;
    made.author = "hierlock";
    made.desc = "no proof before TLS";
    made.license = "Apache 2.0";
    made.authenticate = authenticate;
    return made;
  }();
  const std::lock_guard guard(loading());
  // Checked each time: the application may end the client library and start it again.
  if (mysql_client_find_plugin(mysql, tls_first, authentication_plugin) != nullptr) return;
  if (mysql_client_register_plugin(mysql, reinterpret_cast<st_mysql_client_plugin*>(&plugin)) == nullptr) {
    throw Error(ErrorKind::exhausted, "the client library takes no way to log in");
  }
}

}  // namespace

Login::Login(MYSQL* mysql, const Address& address)
    : address_(address),
      encrypted_(address.tls != Tls::off),
      allowed_(encrypted_ || is_local(address) || address.password.empty() ? allowed : allowed_in_plain_text) {
  make_known(mysql);
  mysql_optionsv(mysql, MARIADB_OPT_RESTRICTED_AUTH, tls_first);  // libmariadb begins with no other plugin
  mysql_optionsv(mysql, MARIADB_OPT_USERDATA, login_of, this);
  mysql_optionsv(mysql, MYSQL_DEFAULT_AUTH, tls_first);
}

int Login::proceed(void* channel, MYSQL* mysql) {
  auto* const vio = static_cast<MYSQL_PLUGIN_VIO*>(channel);
  plaintext_ = encrypted_ && (mysql->server_capabilities & CLIENT_SSL) == 0;
  if (plaintext_) return CR_ERROR;
  // The certificate must be for the name in the URL, not for the address that libmariadb was given.
  if (address_.socket.empty() && !replace(mysql->host, address_.host)) return CR_ERROR;
  unsigned char* answer = nullptr;
  const int size = vio->read_packet(vio, &answer);  // first does the TLS handshake, and sends a login without proof
  if (mysql_errno(mysql) != 0) return CR_ERROR;
  plaintext_ = encrypted_ && mysql_get_ssl_cipher(mysql) == nullptr;
  // Otherwise it is no answer: a server whose greeting names this plugin has sent data for it.
  if (plaintext_ || answer == nullptr || answer != mysql->net.read_pos) return CR_ERROR;
  if (size >= 0)
    return *answer == 0 ? CR_OK_HANDSHAKE_COMPLETE : CR_ERROR;  // the server lets the account in without proof
  if (*answer != another_proof) return CR_ERROR;
  wanted_ = reinterpret_cast<const char*>(answer) + 1;  // the client library puts a NUL behind each packet
  mysql_optionsv(mysql, MARIADB_OPT_RESTRICTED_AUTH, allowed_);
  replace(mysql->passwd, address_.password);
  if (is_allowed()) {
    const std::lock_guard guard(loading());
    mysql_client_find_plugin(mysql, wanted_.c_str(),
                             authentication_plugin);  // if there is none, libmariadb says so next
  }
  return CR_ERROR;  // libmariadb then goes on with the proof that the server asks for
}

bool Login::is_allowed() const { return !wanted_.empty() && std::strstr(allowed_, wanted_.c_str()) != nullptr; }

std::string Login::refusal() const {
  const auto is_in = [this](const char* names) { return std::strstr(names, wanted_.c_str()) != nullptr; };
  std::string name = wanted_.empty() || is_allowed() ? "a way that hierlock does not use" : wanted_.substr(0, 64);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  name = "the server asks this account to log in by " + name;
  if (is_in(allowed) && !is_allowed()) {
    return name +
           ", which without TLS sends the password to whoever answers, encrypted by a key that they choose. Write "
           "tls=verify or tls=on";
  }
  return name +
         ", which would show its password or ask for one. Let it log in by caching_sha2_password, "
         "mysql_native_password "
         "or ed25519";
}

}  // namespace hierlock::mysql
