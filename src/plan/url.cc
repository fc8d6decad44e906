#include <hierlock/spi/url.h>

#include <algorithm>

#include <hierlock/error.h>

#include "plan/text.h"

namespace hierlock::spi {
namespace {

// A URL may hold a password anywhere a typing error can put it: no message shows more of it than one byte and a place.
[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::invalid_argument, message); }

bool is_letter(char c) noexcept { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
bool is_control(char c) noexcept { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

std::string decode(std::string_view text, std::size_t offset) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? plan::hex_digit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? plan::hex_digit(text[i + 2]) : -1;
    if (high < 0 || low < 0) {
      refuse("URL: \"%\" at offset " + std::to_string(offset + i) +
             " is not followed by two hexadecimal digits; write a \"%\" as %25");
    }
    const char byte = static_cast<char>(high * 16 + low);
    if (byte == 0) refuse("URL: NUL (%00) at offset " + std::to_string(offset + i) + " cannot be used; remove it");
    out += byte;
    i += 2;
  }
  return out;
}

std::string encode(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = is_letter(c) || is_digit(c) || std::string_view("-._~/:,").find(c) != std::string_view::npos;
    if (plain) {
      out += c;
    } else {
      out += '%';
      out += plan::hex_digits[static_cast<unsigned char>(c) >> 4];
      out += plan::hex_digits[static_cast<unsigned char>(c) & 15];
    }
  }
  return out;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// Option values that are passwords under another name.
bool is_secret(std::string_view option) {
  const std::string name = lower(option);
  for (const std::string_view word : {"pass", "pwd", "secret", "token"}) {
    // Where a password is kept is no secret.
    if (name.find(word) != name.npos && !name.ends_with("file") && !name.ends_with("env")) return true;
  }
  return false;
}

}  // namespace

Url Url::parse(std::string_view text) {
  if (text.empty()) refuse("the URL is empty; write one like memory:");
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (is_control(text[i])) {
      refuse("URL: control character " + plan::hex_byte(text[i]) + " at offset " + std::to_string(i) +
             "; write it as %HH");
    }
  }
  if (const auto i = plan::find_invalid_utf8(text); i != text.npos) {
    refuse("URL: byte " + plan::hex_byte(text[i]) + " at offset " + std::to_string(i) +
           " is not valid UTF-8; write it as %HH");
  }
  const std::size_t colon = text.find(':');
  const std::string_view scheme = text.substr(0, colon);
  const bool scheme_ok = colon != text.npos && !scheme.empty() && scheme.size() <= 32 && is_letter(scheme[0]) &&
                         std::all_of(scheme.begin(), scheme.end(), [](char c) {
                           return is_letter(c) || is_digit(c) || c == '+' || c == '-' || c == '.';
                         });
  if (!scheme_ok) refuse("the URL has no scheme; begin it with the store and a colon, like memory:");

  Url url;
  url.scheme = lower(scheme);
  const std::size_t question = text.find('?', colon);
  url.rest = text.substr(colon + 1, question == text.npos ? text.npos : question - colon - 1);
  if (question == text.npos) return url;

  for (std::size_t begin = question + 1; begin <= text.size();) {
    const std::size_t end = std::min(text.find('&', begin), text.size());
    const std::string_view option = text.substr(begin, end - begin);
    const std::string where = "option " + std::to_string(url.options.size() + 1);
    // An `@` here is most likely the end of a password with a `?` in it, which would be shown as a host otherwise.
    if (option.find('@') != option.npos) {
      refuse("URL: \"@\" in " + where + "; write \"@\" in an option as %40, and \"?\" in a password as %3F");
    }
    const std::size_t equals = option.find('=');
    if (equals == option.npos) refuse("URL: " + where + " has no \"=\"; write ?name=value");
    if (equals == 0) refuse("URL: " + where + " has no name; write ?name=value");
    std::string name = spi::decode(option.substr(0, equals), begin);
    for (const auto& [other, value] : url.options) {
      if (other == name) refuse("URL: option " + plan::excerpt(name) + " is there twice; remove one");
    }
    url.options.emplace_back(std::move(name), spi::decode(option.substr(equals + 1), begin + equals + 1));
    begin = end + 1;
  }
  return url;
}

std::string Url::decode(std::string_view text) { return spi::decode(text, 0); }

std::string Url::safe_text() const {
  std::string text = scheme + ":";
  const std::size_t user = rest.starts_with("//") ? 2 : 0;
  // The last `@`, because a password may hold one; the first colon, because a user may not.
  const std::size_t at = rest.rfind('@');
  std::size_t colon = rest.find(':', user);
  // One that was encoded is a part of the user, and most likely a mistake.
  for (const std::string_view encoded : {"%3A", "%3a"}) {
    if (const std::size_t i = rest.find(encoded, user); at != rest.npos && i < at && i < colon) colon = i + 2;
  }
  // Without an `@` what follows a colon is a port, unless the host was forgotten: then it may be a password.
  const std::size_t end = std::min(rest.find('/', user), rest.size());
  const bool is_host = colon >= end || rest[user] == '[' || rest.find_first_not_of("0123456789", colon + 1) >= end;
  if (at != rest.npos && colon < at) {
    text += rest.substr(0, colon + 1) + "***" + rest.substr(at);
  } else if (user > 0 && !is_host) {
    text += rest.substr(0, colon + 1) + "***" + rest.substr(end);
  } else {
    text += rest;
  }
  char separator = '?';
  for (const auto& [name, value] : options) {
    text += separator + encode(name) + "=" + (is_secret(name) ? "***" : encode(value));
    separator = '&';
  }
  return text;
}

}  // namespace hierlock::spi
