// Programs: the tool is several of them. Loading every store's client library would make every start slower
// (docs/bench.md). So a store that needs one has a program of its own, beside this one or in its libexec folder.
#pragma once

#include <string>
#include <vector>

namespace hierlock::cli {

#ifdef HIERLOCK_MYSQL_TOOL
inline constexpr bool built_with_mysql = true;
#else
inline constexpr bool built_with_mysql = false;
#endif
#ifdef HIERLOCK_VALKEY_TOOL
inline constexpr bool built_with_valkey = true;
#else
inline constexpr bool built_with_valkey = false;
#endif
#ifdef HIERLOCK_LAB_TOOL
inline constexpr bool built_with_lab = true;
#else
inline constexpr bool built_with_lab = false;
#endif

// The folder of this program, and the files that hierlock-NAME may be, in the order in which they are tried.
std::string own_folder();
std::vector<std::string> places_of_program(const std::string& name);
// The first of them that is there; empty if there is none.
std::string find_program(const std::string& name);

}  // namespace hierlock::cli
