#include "postgres_client/address.h"

#include <libpq-fe.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include <hierlock/error.h>
#include <hierlock/spi/url.h>

#include "endpoint/endpoint.h"

namespace hierlock::postgres {

namespace {

using endpoint::Tls;
using Settings = std::map<std::string, std::string>;

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::invalid_argument, message); }

std::vector<std::string_view> split(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(by);
    parts.push_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// Takes the options of Access out of the URL. libpq would refuse them.
std::string take_access(std::string_view url, std::vector<std::pair<std::string, std::string>>& taken) {
  const std::size_t mark = url.find('?');
  if (mark == url.npos) return std::string(url);
  std::string rest(url.substr(0, mark));
  char before = '?';
  for (const std::string_view option : split(url.substr(mark + 1), '&')) {
    const std::size_t equals = option.find('=');
    const std::string_view name = option.substr(0, equals);
    if (equals != option.npos && endpoint::Access::knows(name)) {
      taken.emplace_back(name, spi::Url::decode(option.substr(equals + 1)));
      continue;
    }
    rest += before;
    rest += option;
    before = '&';
  }
  return rest;
}

// libpq's message about a URL that it cannot read may show a password. If the host was forgotten, libpq takes the
// password for the port.
Settings read_by_libpq(const std::string& url) {
  char* message = nullptr;
  PQconninfoOption* const options = PQconninfoParse(url.c_str(), &message);
  PQfreemem(message);
  Settings settings;
  bool good = options != nullptr;
  for (const PQconninfoOption* option = options; good && option->keyword != nullptr; ++option) {
    if (option->val == nullptr) continue;
    const std::string_view value = option->val;
    if (std::string_view(option->keyword) == "port") good = value.find_first_not_of("0123456789,") == value.npos;
    settings[option->keyword] = value;
  }
  PQconninfoFree(options);
  if (!good) {
    refuse(
        "libpq does not understand this URL: write postgres://user@host:5432/database, with libpq's own options "
        "behind a \"?\", and in a password %2F for \"/\", %3F for \"?\" and %40 for \"@\"");
  }
  return settings;
}

// A setting of the URL, or else libpq's default, which may come from the environment.
std::string effective(const Settings& settings, const char* keyword) {
  if (const auto found = settings.find(keyword); found != settings.end()) return found->second;
  const std::unique_ptr<PQconninfoOption, decltype(&PQconninfoFree)> defaults(PQconndefaults(), &PQconninfoFree);
  for (const PQconninfoOption* option = defaults.get(); option != nullptr && option->keyword != nullptr; ++option) {
    if (std::string_view(option->keyword) == keyword && option->val != nullptr) return option->val;
  }
  return "";
}

// A list of hosts is local if all of them are. A host that begins with "/" or "@" is a socket, and no host is one, too.
bool is_local(const Settings& settings) {
  if (settings.contains("service")) return false;  // its file may name any host
  std::string hosts = effective(settings, "hostaddr");
  if (hosts.empty()) hosts = effective(settings, "host");
  for (const std::string_view host : split(hosts, ',')) {
    const bool socket = host.empty() || host.starts_with('/') || host.starts_with('@');
    if (!socket && !endpoint::is_loopback(host)) return false;
  }
  return true;
}

// The certificates that the system trusts. Before version 16 libpq knows no word for them. Empty: none are found, and
// libpq looks for a file of the user's.
std::string system_ca() {
  if (PQlibVersion() >= 160000) return "system";
  for (const char* file : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}) {
    if (access(file, R_OK) == 0) return file;
  }
  return "";
}

void set_tls(const endpoint::Access& access, Settings& settings) {
  const bool said = access.tls.has_value() || !access.ca.empty();
  const bool said_to_libpq = settings.contains("sslmode") || settings.contains("sslrootcert");
  if (said && said_to_libpq) refuse("tls= and ca= say the same as sslmode= and sslrootcert=: keep one pair");
  if (!said && (said_to_libpq || std::getenv("PGSSLMODE") != nullptr)) return;
  const Tls mode = access.mode(is_local(settings));
  settings["sslmode"] = mode == Tls::off ? "disable" : mode == Tls::on ? "require" : "verify-full";
  if (mode != Tls::off) settings["gssencmode"] = "disable";  // it would take the place of TLS
  if (mode != Tls::verify) return;
  const std::string ca = access.ca.empty() ? system_ca() : access.ca;
  if (!ca.empty()) settings["sslrootcert"] = ca;
}

}  // namespace

Address read_address(std::string_view url) {
  std::vector<std::pair<std::string, std::string>> options;
  Address address{.settings = read_by_libpq(take_access(url, options)), .place = {}};
  endpoint::Access access;
  if (const auto own = address.settings.find("password"); own != address.settings.end() && !own->second.empty()) {
    access.password = own->second;
  }
  for (const auto& [name, value] : options) access.read(name, value);
  if (access.password) address.settings["password"] = *access.password;
  set_tls(access, address.settings);
  const std::string host = effective(address.settings, "host"), at = effective(address.settings, "hostaddr");
  const std::string name = !host.empty() ? host : !at.empty() ? at : "the local socket";
  address.place = name + ":" + effective(address.settings, "port");
  return address;
}

}  // namespace hierlock::postgres
