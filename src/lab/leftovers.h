// Leftovers: what a run of the lab that was killed has left in a folder.
#pragma once

#include <filesystem>
#include <string_view>

namespace hierlock::lab {

// Removes the files and folders there that are called `begin`, a process id, and more, if there is no such process.
void remove_leftovers(const std::filesystem::path& folder, std::string_view begin) noexcept;

}  // namespace hierlock::lab
