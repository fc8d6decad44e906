// Login: proves who the account is, and sends nothing secret before the connection is encrypted.
//
// If a server says that it has no TLS, libmariadb goes on in plain text, even if TLS was enforced. It shows the cipher
// only after the login. So hierlock gives libmariadb no password at first, and makes it begin with a login plugin of
// hierlock's own. The plugin sends no proof. Every server then asks for the proof that the account needs.
//
// If TLS was asked for and the server's greeting offers none, the plugin gives up before anything is sent. Otherwise it
// hands out the password once the connection is encrypted and, with tls=verify, the certificate is verified. With
// tls=off it hands out the password without encryption. But to another machine it then never uses a proof from which an
// impostor could read the password. All this costs one round trip.
#pragma once

#include <string>

#include "mysql_client/address.h"

struct st_mysql;

namespace hierlock::mysql {

class Login {
 public:
  // For one connection, from before mysql_real_connect() until it has ended. Give that function no password.
  Login(st_mysql* mysql, const Address& address);
  Login(const Login&) = delete;
  Login& operator=(const Login&) = delete;

  // The plugin gave up: the server has no TLS.
  bool plaintext() const noexcept { return plaintext_; }
  // Why hierlock does not give the proof that the server asked for.
  std::string refusal() const;

  // Called by the plugin.
  int proceed(void* channel, st_mysql* mysql);

 private:
  bool is_allowed() const;  // the proof that the server asks for

  const Address& address_;
  const bool encrypted_;
  const char* const allowed_;
  bool plaintext_ = false;
  std::string wanted_;
};

}  // namespace hierlock::mysql
