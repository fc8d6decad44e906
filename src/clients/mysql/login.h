// Login: how an account may prove who it is, and that nothing secret leaves before the connection is encrypted.
//
// libmariadb goes on in plain text with a server that says it has no TLS, whatever was enforced, and shows the cipher
// only after the login. So it is not given the password at first. It begins with a way of its own, made here, that
// sends no proof at all, after which every server asks for the one that the account wants. That way is given up where
// TLS was asked for and the greeting offers none; and it hands out the password when the connection is encrypted (and
// the certificate verified, with tls=verify), or was not to be. It costs a round trip.
#pragma once

#include <string>

struct st_mysql;

namespace hierlock::mysql {

class Login {
 public:
  // For one connection that is about to be made, and as long as that takes. mysql_real_connect() is to be given no
  // password.
  Login(st_mysql* mysql, std::string password, bool encrypted);
  Login(const Login&) = delete;
  Login& operator=(const Login&) = delete;

  // It was given up: the server has no TLS.
  bool plaintext() const noexcept { return plaintext_; }
  // What was asked for, if that is a proof that is never given; for people.
  std::string refused() const;

  // The client library's part of it.
  int proceed(void* channel, st_mysql* mysql);

 private:
  const std::string password_;
  const bool encrypted_;
  bool plaintext_ = false;
  std::string wanted_;
};

}  // namespace hierlock::mysql
