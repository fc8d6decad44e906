#include "cli/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include <hierlock/error.h>
#include <hierlock/spi/url.h>

#include "cli/output.h"
#include "plan/text.h"

namespace hierlock::cli {
namespace {

using Verdict = Finding::Verdict;

// The worst first: what is unsafe is what one came for.
constexpr Verdict worst_first[] = {Verdict::unsafe, Verdict::slow, Verdict::unknown, Verdict::good};

std::size_t count(std::span<const Finding> findings, Verdict verdict) {
  return static_cast<std::size_t>(
      std::count_if(findings.begin(), findings.end(), [&](const Finding& f) { return f.verdict == verdict; }));
}

std::string finding_text(const Finding& finding) {
  constexpr std::size_t indent = 10;
  std::string out = wrapped(fmt::format("{:<8}  {}: {}", to_string(finding.verdict), plan::showable(finding.check),
                                        plan::showable(finding.text)),
                            line_width, indent);
  if (!finding.fix.empty()) {
    // Its first line is indented as well.
    const std::string fix = wrapped("fix: " + plan::showable(finding.fix), line_width - indent);
    std::string margin(indent, ' ');
    for (std::size_t at = 0; at < fix.size();) {
      const std::size_t end = fix.find('\n', at) + 1;
      out += margin + fix.substr(at, end - at);
      at = end;
    }
  }
  return out;
}

std::string as_text(const std::string& store, std::span<const Finding> findings) {
  std::string out = wrapped(plan::showable(store), line_width) + "\n";
  for (const Verdict verdict : worst_first) {
    for (const Finding& finding : findings) {
      if (finding.verdict == verdict) out += finding_text(finding);
    }
  }
  out += "\n";
  for (const Verdict verdict : worst_first) {
    out += fmt::format("{}{} {}", verdict == worst_first[0] ? "" : ", ", count(findings, verdict), to_string(verdict));
  }
  return out + "\n";
}

std::string as_json(const std::string& store, std::span<const Finding> findings) {
  Json json;
  json.open_object()
      .number("version", std::uint64_t{1})
      .text("store", plan::showable(store))
      .boolean("safe", count(findings, Verdict::unsafe) == 0)
      .open_array("findings");
  for (const Finding& finding : findings) {
    json.open_object()
        .text("check", plan::showable(finding.check))
        .text("verdict", to_string(finding.verdict))
        .text("text", plan::showable(finding.text))
        .text("fix", plan::showable(finding.fix))
        .close();
  }
  return json.close().close().str();
}

}  // namespace

std::string doctor_of(const std::string& store, std::span<const Finding> findings, bool json) {
  return json ? as_json(store, findings) : as_text(store, findings);
}

int doctor(const DoctorCommand& command) {
  std::vector<Finding> findings;
  try {
    findings = hierlock::doctor(command.store.text);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_argument) throw;
    throw UsageError(command.store.from + ": " + error.what());
  }
  const int code = print(doctor_of(spi::Url::parse(command.store.text).safe_text(), findings, command.json));
  if (code != exit_ok) return code;
  return count(findings, Verdict::unsafe) > 0 ? exit_setup : exit_ok;
}

}  // namespace hierlock::cli
