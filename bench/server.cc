#include "server.h"

#include <cstdlib>
#include <string>

#include "sql_session.h"

namespace bench {

const char* server_for(Session& session, std::string_view group, const char* variable) {
  const std::string why = why_no_mysql();
  const char* const url = std::getenv(variable);
  if (!why.empty()) {
    session.skip(group, why);
  } else if (url == nullptr) {
    session.skip(group, std::string(variable) + " names no server: eval \"$(tools/servers env)\"");
  }
  return why.empty() ? url : nullptr;
}

}  // namespace bench
