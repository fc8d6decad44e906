// The files of the report, made a source by hierlock_embed() in src/CMakeLists.txt.
#pragma once

#include <string_view>

namespace hierlock::lab {

extern const std::string_view report_html;
extern const std::string_view report_css;
extern const std::string_view report_js;

}  // namespace hierlock::lab
