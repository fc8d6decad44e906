// Option: values of a URL's options. Each throws Error(invalid_argument) that says what to write.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace hierlock::plan {

// A whole number within these bounds.
std::uint64_t read_number(const std::string& name, const std::string& value, std::uint64_t least, std::uint64_t most);
// The same, as a time.
std::chrono::milliseconds read_milliseconds(const std::string& name, const std::string& value, std::uint64_t least,
                                            std::uint64_t most);
// A number, or `100k`, `10M`, `1G`.
std::uint64_t read_count(const std::string& name, const std::string& value, std::uint64_t least, std::uint64_t most);
// True for `yes`, false for `no`.
bool read_choice(const std::string& name, const std::string& value, const std::string& yes, const std::string& no);
// A name for a table, which statements can quote without an escape: 1 to `most` letters, digits or "_".
std::string read_table_name(const std::string& name, const std::string& value, std::size_t most);

}  // namespace hierlock::plan
