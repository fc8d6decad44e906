// Json: what a Result has, as one document. docs/lab-report.md describes it, and the report draws itself from it.
#include <hierlock/lab.h>
#include <hierlock/version.h>

#include "print/json.h"
#include "print/text.h"

namespace hierlock::lab {
namespace {

using print::Json;
using print::valid;

std::uint64_t microseconds(std::chrono::nanoseconds time) {
  return static_cast<std::uint64_t>(
      std::max<std::int64_t>(std::chrono::duration_cast<std::chrono::microseconds>(time).count(), 0));
}

std::string_view kind_text(Event::Kind kind) {
  switch (kind) {
    case Event::Kind::setup:
      return "setup";
    case Event::Kind::step:
      return "step";
    case Event::Kind::check:
      return "check";
    case Event::Kind::teardown:
      break;
  }
  return "teardown";
}

void write(Json& json, std::string_view name, const std::vector<std::string>& words) {
  json.open_array(name);
  for (const std::string& word : words) json.text("", valid(word));
  json.close();
}

void write(Json& json, const Event& event) {
  json.open_object()
      .text("kind", kind_text(event.kind))
      .number("line", std::uint64_t{event.line})
      .text("session", valid(event.session))
      .text("name", valid(event.name))
      .text("text", valid(event.text))
      .text("sent", valid(event.sent))
      .text("expected", valid(event.expected))
      .text("actual", valid(event.actual))
      .boolean("passed", event.passed)
      .text("why", valid(event.why))
      .boolean("blocked", event.blocked);
  json.open_array("freed");
  for (const Event::Freed& freed : event.freed) {
    json.open_object().number("event", std::uint64_t{freed.event}).text("actual", valid(freed.actual)).close();
  }
  json.close().open_array("locks");
  for (const LockSeen& lock : event.locks) {
    json.open_object()
        .text("session", valid(lock.session))
        .text("object", valid(lock.object))
        .text("mode", valid(lock.mode))
        .boolean("granted", lock.granted)
        .close();
  }
  json.close().open_array("waits");
  for (const WaitSeen& wait : event.waits) {
    json.open_object().text("session", valid(wait.session));
    write(json, "blockers", wait.blockers);
    json.text("object", valid(wait.object)).close();
  }
  json.close();
  write(json, "cycle", event.cycle);
  json.number("began_us", microseconds(event.began)).number("took_us", microseconds(event.took)).close();
}

}  // namespace

std::string json(const Permuted& permuted) {
  Json json;
  json.open_object()
      .number("version", std::uint64_t{1})
      .text("hierlock", HIERLOCK_VERSION)
      .text("scenario", valid(permuted.scenario))
      .text("engine", valid(permuted.engine))
      .number("schedules", permuted.schedules)
      .boolean("complete", permuted.complete)
      .text("bounds", valid(permuted.bounds))
      .boolean("deadlocks", permuted.deadlocks())
      .open_array("classes");
  for (const Permuted::Class& one : permuted.classes) {
    json.open_object().text("outcome", valid(one.outcome)).number("schedules", one.schedules);
    write(json, "schedule", one.schedule);
    json.boolean("deadlock", one.deadlock).close();
  }
  return json.close().close().str();
}

std::string json(std::span<const Result> results) {
  Json json;
  json.open_object().number("version", std::uint64_t{1}).text("hierlock", HIERLOCK_VERSION).open_array("results");
  for (const Result& result : results) {
    json.open_object().text("scenario", valid(result.scenario)).text("file", valid(result.file));
    write(json, "proves", result.proves);
    write(json, "about", result.about);
    json.open_object("facts");
    for (const auto& [name, value] : result.facts) json.text(valid(name), valid(value));
    json.close()
        .text("engine", valid(result.engine))
        .text("engine_version", valid(result.version))
        .text("url", valid(result.url))
        .text("verdict", to_string(result.verdict))
        .text("message", valid(result.message));
    write(json, "sessions", result.sessions);
    write(json, "schedule", result.schedule);
    json.open_array("events");
    for (const Event& event : result.events) write(json, event);
    json.close().number("took_us", microseconds(result.took)).close();
  }
  return json.close().close().str();
}

}  // namespace hierlock::lab
