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

// The login plugins that send the password as it is only if the connection is encrypted. `mysql_clear_password` always
// does, and `dialog` asks at the terminal, so both are left out. The client library looks for a name anywhere in this
// text.
constexpr char allowed[] = "mysql_native_password,caching_sha2_password,sha256_password,client_ed25519,parsec";

int authenticate(MYSQL_PLUGIN_VIO* channel, MYSQL* mysql) {
  void* login = nullptr;
  mysql_get_optionv(mysql, MARIADB_OPT_USERDATA, const_cast<char*>(login_of), &login);
  try {
    return login == nullptr ? CR_ERROR : static_cast<Login*>(login)->proceed(channel, mysql);
  } catch (...) {  // no memory
    return CR_ERROR;
  }
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
  static std::mutex mutex;
  const std::lock_guard guard(mutex);
  // Checked each time: the application may end the client library and start it again.
  if (mysql_client_find_plugin(mysql, tls_first, authentication_plugin) != nullptr) return;
  if (mysql_client_register_plugin(mysql, reinterpret_cast<st_mysql_client_plugin*>(&plugin)) == nullptr) {
    throw Error(ErrorKind::exhausted, "the client library takes no way to log in");
  }
}

}  // namespace

Login::Login(MYSQL* mysql, std::string password, bool encrypted)
    : password_(std::move(password)), encrypted_(encrypted) {
  make_known(mysql);
  mysql_optionsv(mysql, MARIADB_OPT_RESTRICTED_AUTH, tls_first);  // libmariadb begins with no other plugin
  mysql_optionsv(mysql, MARIADB_OPT_USERDATA, login_of, this);
  mysql_optionsv(mysql, MYSQL_DEFAULT_AUTH, tls_first);
}

int Login::proceed(void* channel, MYSQL* mysql) {
  auto* const vio = static_cast<MYSQL_PLUGIN_VIO*>(channel);
  plaintext_ = encrypted_ && (mysql->server_capabilities & CLIENT_SSL) == 0;
  if (plaintext_) return CR_ERROR;
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
  char* const copy = strdup(password_.c_str());         // the client library frees it
  if (copy == nullptr) return CR_ERROR;
  mysql_optionsv(mysql, MARIADB_OPT_RESTRICTED_AUTH, allowed);
  std::free(mysql->passwd);
  mysql->passwd = copy;
  return CR_ERROR;  // libmariadb then goes on with the proof that the server asks for
}

std::string Login::refused() const {
  if (wanted_.empty() || std::strstr(allowed, wanted_.c_str()) != nullptr) return "a way that hierlock does not use";
  std::string name = wanted_.substr(0, 64);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return name;
}

}  // namespace hierlock::mysql
