// Report: report.html with the style, the results and the script in their places. What the results say is data of the
// script alone, which makes text nodes of it and nothing else.
#include "lab/report.h"

#include <hierlock/lab.h>

#include <string>

namespace hierlock::lab {
namespace {

// In a script element only `<` can end the data or begin a comment (HTML, 4.12.1.3), and in JSON it stands in strings
// only. Line feeds, on the other hand, never stand in strings: they and the blanks after them are left out.
std::string inert(const std::string& document) {
  std::string out;
  bool indent = false;
  for (const char c : document) {
    indent = c == '\n' || (indent && c == ' ');
    if (c == '<') {
      out += "\\u003c";
    } else if (!indent) {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string html(std::span<const Result> results) {
  std::string out;
  std::string_view rest = report_html;
  // In one pass: what was put in is not looked at again.
  const auto put = [&](std::string_view mark, std::string_view text) {
    const std::size_t at = rest.find(mark);
    out += rest.substr(0, at);
    out += text;
    rest.remove_prefix(at + mark.size());
  };
  put("{{style}}", report_css);
  put("{{results}}", inert(json(results)));
  put("{{script}}", report_js);
  out += rest;
  return out;
}

}  // namespace hierlock::lab
