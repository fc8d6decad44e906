#include "report.h"

#include <hierlock/version.h>

#include <string_view>
#include <thread>

#include "print/json.h"

namespace bench {

using hierlock::print::Json;

namespace {

template <class... Args>
std::string format(const char* pattern, Args... args) {
  char text[256];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
  std::snprintf(text, sizeof text, pattern, args...);
#pragma GCC diagnostic pop
  return text;
}

// Three digits that count, fewer for what is very small.
std::string digits(double value) {
  if (value < 0.00995) return format("%.1g", value);
  const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : value >= 0.9995 ? 2 : 3;
  return format("%.*f", decimals, value);
}

std::string with_unit(double value, Unit unit) {
  switch (unit) {
    case Unit::pairs_per_second:
      if (value >= 1e6) return digits(value / 1e6) + " M/s";
      return digits(value / 1e3) + " k/s";
    case Unit::nanoseconds:
      if (value >= 1e6) return digits(value / 1e6) + " ms";
      if (value >= 1e3) return digits(value / 1e3) + " us";
      return digits(value) + " ns";
    case Unit::bytes:
      return digits(value) + " B";
    case Unit::bytes_per_second:
      return digits(value / 1e3) + " kB/s";
    case Unit::cores:
      return digits(value) + " cores";
    case Unit::instructions:
      return digits(value) + " in.";
    case Unit::sleeps:
      return digits(value) + " sl.";
    case Unit::connections:
      return digits(value) + " con.";
    case Unit::requests_per_second:
      return digits(value) + " re/s";
    case Unit::statements_per_second:
      return digits(value) + " st/s";
  }
  return "?";
}

std::string bar_text(const std::optional<Bar>& bar) {
  if (!bar) return "-";
  return format("%s %g", bar->kind == Bar::Kind::at_least ? ">=" : "<=", bar->value);
}

std::string_view json_unit(Unit unit) {
  switch (unit) {
    case Unit::pairs_per_second:
      return "pairs/s";
    case Unit::nanoseconds:
      return "ns";
    case Unit::bytes:
      return "bytes";
    case Unit::bytes_per_second:
      return "bytes/s";
    case Unit::cores:
      return "cores";
    case Unit::instructions:
      return "instructions";
    case Unit::sleeps:
      return "sleeps";
    case Unit::connections:
      return "connections";
    case Unit::requests_per_second:
      return "requests/s";
    case Unit::statements_per_second:
      return "statements/s";
  }
  return "?";
}

std::string_view json_verdict(Verdict verdict) { return verdict == Verdict::missed ? "missed" : to_string(verdict); }

void write(Json& json, std::string_view name, const Summary& s) {
  json.open_object(name)
      .number("median", s.median)
      .number("min", s.min)
      .number("q1", s.q1)
      .number("q3", s.q3)
      .number("max", s.max)
      .close();
}

}  // namespace

std::vector<const Result*> Report::missed() const {
  std::vector<const Result*> result;
  for (const Result& r : outcome.results) {
    if (verdict(r) == Verdict::missed) result.push_back(&r);
  }
  return result;
}

std::vector<const Skipped*> Report::unjudged() const {
  std::vector<const Skipped*> result;
  for (const Skipped& s : outcome.skipped) {
    if (enforce == Enforce::full && s.what->bar) result.push_back(&s);
  }
  return result;
}

std::string table(const Report& report) {
  const char* const row = "%-27s %11s %11s %7s %15s %8s  %s\n";
  std::string text = format(row, "case", "ours", "peer", "ratio", "quartiles", "bar", "verdict");
  for (const Result& r : report.outcome.results) {
    const Unit unit = r.what->unit;
    text += format(row, r.what->name().c_str(), with_unit(r.ours.median, unit).c_str(),
                   with_unit(r.peer.median, unit).c_str(), digits(r.ratio.median).c_str(),
                   (digits(r.ratio.q1) + ".." + digits(r.ratio.q3)).c_str(), bar_text(r.what->bar).c_str(),
                   std::string(to_string(report.verdict(r))).c_str());
  }
  text += format("\nmedians of %zu interleaved rounds; the ratio (ours to peer) is taken within each round\n",
                 report.effort.rounds);
  if (report.load > 0.5) {
    text += format("the machine was busy (load %.1f before the run): cases with two threads or processes suffer most\n",
                   report.load);
  }
  text +=
      "M/s, k/s: acquire-release pairs a second, of all threads or processes together; in.: instructions; "
      "sl.: sleeps; con.: connections; st/s, re/s: statements, requests a second\n";
  switch (report.enforce) {
    case Enforce::full:
      break;
    case Enforce::half:
      text += "half a bar is enforced: `below` misses the bar, but not half of it\n";
      break;
    case Enforce::off:
      text += "no bar is enforced: `below` misses it\n";
      break;
  }
  return text;
}

std::string json(const Report& report) {
  Json json;
  json.open_object()
      .number("version", std::uint64_t{1})
      .text("program", "bench/compare")
      .text("hierlock", HIERLOCK_VERSION)
      .number("cores", std::uint64_t{std::thread::hardware_concurrency()})
      .number("load_before", report.load)
      .boolean("quick", report.effort.quick)
      .number("rounds", std::uint64_t{report.effort.rounds})
      .text("enforce", to_string(report.enforce))
      .boolean("met", report.missed().empty() && report.unjudged().empty())
      .open_array("cases");
  for (const Result& r : report.outcome.results) {
    json.open_object()
        .text("case", r.what->name())
        .text("what", r.what->what)
        .text("against", r.what->against)
        .text("unit", json_unit(r.what->unit));
    write(json, "ours", r.ours);
    write(json, "peer", r.peer);
    write(json, "ratio", r.ratio);
    if (const std::optional<Bar>& bar = r.what->bar) {
      json.open_object("bar")
          .text("kind", bar->kind == Bar::Kind::at_least ? "at_least" : "at_most")
          .number("value", bar->value)
          .close();
    } else {
      json.null("bar");
    }
    json.text("verdict", json_verdict(report.verdict(r))).close();
  }
  json.close().open_array("skipped");
  for (const Skipped& s : report.outcome.skipped) {
    json.open_object().text("case", s.what->name()).text("why", s.why).close();
  }
  return json.close().close().str();
}

std::string list() {
  std::string text;
  for (const Case& c : all_cases()) {
    const std::string what = std::string(c.what) + "; " + std::string(c.against);
    text += format("%-27s %8s  %s\n", c.name().c_str(), bar_text(c.bar).c_str(), what.c_str());
  }
  text += format("%-27s %8s  %s\n", "designs", "-", "lock rows in three designs, a table of its own; run only by name");
  return text;
}

}  // namespace bench
