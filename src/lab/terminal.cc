// Terminal: a transcript as swim lanes. One column a session; a step is a block of lines in its session's column, and a
// session that waits has a bar in every line until the one in which it is freed.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include <hierlock/lab.h>

#include "plan/text.h"
#include "print/text.h"

namespace hierlock::lab {
namespace {

using print::columns;

enum class Paint : std::uint8_t { none, bold, dim, good, bad, waits };

std::string painted(const std::string& text, Paint paint, const Style& style) {
  constexpr const char* codes[] = {"", "1", "2", "32", "1;31", "33"};
  if (!style.colour || paint == Paint::none || text.empty()) return text;
  return std::string("\x1B[") + codes[static_cast<std::size_t>(paint)] + "m" + text + "\x1B[0m";
}

// In one line, with nothing in it that a terminal would obey.
std::string clean(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return plan::showable(text);
}

std::string list(const std::vector<std::string>& words, std::string_view separator) {
  std::string out;
  for (const std::string& word : words) {
    if (!out.empty()) out += separator;
    out += clean(word);
  }
  return out;
}

std::string circle(const std::vector<std::string>& cycle) { return list(cycle, " → ") + " → " + clean(cycle.front()); }

std::string reason(const WaitSeen& wait) {
  return "waits for " + (wait.blockers.empty() ? "somebody" : list(wait.blockers, ", ")) +
         (wait.object.empty() ? "" : ": " + clean(wait.object));
}

struct Line {
  std::string text;
  Paint paint = Paint::none;
};
using Block = std::vector<Line>;

// The text in lines of a block; those after the first begin below the text, not below its mark.
void add(Block& block, const std::string& text, std::size_t width, Paint paint, std::size_t indent = 0) {
  const std::string lines = print::wrapped(text, width, indent);
  for (std::string_view rest = lines; !rest.empty();) {
    const std::size_t end = rest.find('\n');
    std::string line(rest.substr(0, end));
    line.resize(line.find_last_not_of(' ') + 1);
    block.push_back({std::move(line), paint});
    rest.remove_prefix(end + 1);
  }
}

class Lanes {
 public:
  Lanes(const Result& result, const Style& style) : result_(result), style_(style) {
    for (const std::string& session : result.sessions) lane_of_.emplace(session, lane_of_.size());
    for (const Event& event : result.events) {  // they are among the sessions; a hand-made result may have forgotten
      if (!event.session.empty()) lane_of_.emplace(event.session, lane_of_.size());
      names_ = std::max(names_, columns(label(event)));
    }
    names_ = std::min(names_, std::max<std::size_t>(style.width / 8, 5));
    count_ = std::max<std::size_t>(lane_of_.size(), 1);
    const std::size_t room = style.width > names_ + 2 ? style.width - names_ - 2 : 1;
    wide_ = room;
    width_ = std::max((room + gap) / count_, gap) - gap;
    // Too narrow to be read side by side: below each other, each line with its session.
    if (width_ < 10) {
      together_ = true;
      count_ = 1;
      width_ = room;
    }
  }

  std::string str() {
    if (!together_) {
      std::vector<Block> heads(count_);
      for (const auto& [session, lane] : lane_of_)
        heads[lane] = {{print::fit_begin(clean(session), width_), Paint::bold}};
      write("", heads);
    }
    for (std::size_t i = 0; i < result_.events.size(); ++i) draw(i);
    return out_;
  }

 private:
  static constexpr std::size_t gap = 2;

  static std::string label(const Event& event) {
    if (event.kind == Event::Kind::setup) return "setup";
    if (event.kind == Event::Kind::check) return "check";
    return clean(event.name);
  }

  std::size_t lane(const std::string& session) const { return together_ ? 0 : lane_of_.at(session); }
  std::string who(const std::string& session) const { return together_ ? clean(session) + " " : ""; }

  void draw(std::size_t index) {
    const Event& event = result_.events[index];
    if (event.kind != Event::Kind::step) return draw_wide(event);

    std::vector<Block> blocks(count_);
    Block& block = blocks[lane(event.session)];
    add(block, who(event.session) + clean(event.text), width_, Paint::none, 2);
    answer(block, event, width_);
    std::set<std::size_t> freed;
    for (const WaitSeen& wait : event.waits) {
      if (lane_of_.count(wait.session) == 0) continue;
      const bool own = wait.session == event.session;
      if (!own && (waiting_.count(wait.session) == 0 || waiting_[wait.session] == reason(wait))) continue;
      waiting_[wait.session] = reason(wait);
      add(blocks[lane(wait.session)], "┃ " + who(wait.session) + reason(wait), width_, Paint::waits, 2);
    }
    if (event.blocked && waiting_.count(event.session) == 0) waiting_[event.session] = "";
    std::size_t height = 0;
    for (const Block& each : blocks) height = std::max(height, each.size());
    for (const Event::Freed& end : event.freed) {
      if (end.event >= index) continue;
      const std::string& session = result_.events[end.event].session;
      if (lane_of_.count(session) == 0) continue;
      Block& theirs = blocks[lane(session)];
      // The freed one ends its bar below what freed it.
      while (!together_ && session != event.session && theirs.size() < height) theirs.push_back({"┃", Paint::waits});
      const bool well = end.actual != "deadlock" && !end.actual.starts_with("error");
      add(theirs, "┗ " + who(session) + clean(end.actual), width_, well ? Paint::good : Paint::bad, 2);
      waiting_.erase(session);
      freed.insert(lane(session));
    }
    for (const Block& each : blocks) height = std::max(height, each.size());
    if (!together_) {
      for (const auto& [session, text] : waiting_) {
        Block& theirs = blocks[lane(session)];
        while (theirs.size() < height) theirs.push_back({"┃", Paint::waits});
        // The wrapped reason of a bar keeps the bar.
        for (Line& line : theirs) {
          if (line.paint == Paint::waits && line.text.starts_with("  ")) line.text.replace(0, 1, "┃");
        }
      }
    }
    write(label(event), blocks);
  }

  // What no session does, across all columns.
  void draw_wide(const Event& event) {
    Block block;
    add(block, clean(event.text), wide_, event.kind == Event::Kind::setup ? Paint::dim : Paint::none, 2);
    if (event.kind == Event::Kind::check || !event.passed) answer(block, event, wide_);
    std::string name = label(event);
    for (const Line& line : block) {
      row(name, painted(line.text, line.paint, style_));
      name.clear();
    }
  }

  static void answer(Block& block, const Event& event, std::size_t width) {
    if (!event.cycle.empty()) add(block, "⟳ " + circle(event.cycle), width, Paint::bad, 2);
    if (!event.passed) {
      add(block, "✗ got " + clean(event.actual), width, Paint::bad, 2);
      add(block, "  expected " + (event.expected.empty() ? "ok" : clean(event.expected)), width, Paint::bad, 2);
    } else if (!event.blocked) {
      const bool bad = event.actual.starts_with("deadlock") || event.actual.starts_with("error");
      add(block, "→ " + clean(event.actual), width, bad ? Paint::bad : Paint::good, 2);
    } else if (event.waits.empty()) {
      add(block, "┃ " + clean(event.actual), width, Paint::waits, 2);
    }
  }

  void write(std::string name, const std::vector<Block>& blocks) {
    std::size_t height = 0;
    for (const Block& block : blocks) height = std::max(height, block.size());
    for (std::size_t i = 0; i < height; ++i) {
      std::string text;
      std::string blanks;
      for (const Block& block : blocks) {
        const Line line = i < block.size() ? block[i] : Line{};
        if (!line.text.empty()) {
          text += blanks + painted(line.text, line.paint, style_);
          blanks.clear();
        }
        blanks.append(width_ + gap - std::min(columns(line.text), width_), ' ');
      }
      row(name, text);
      name.clear();
    }
  }

  void row(const std::string& name, const std::string& text) {
    const std::string shown = print::fit_begin(name, names_);
    out_ += painted(shown, Paint::dim, style_);
    if (!text.empty()) out_ += std::string(names_ + 2 - columns(shown), ' ') + text;
    out_ += "\n";
  }

  const Result& result_;
  const Style& style_;
  std::map<std::string, std::size_t> lane_of_;
  std::map<std::string, std::string> waiting_;  // who waits now, and the reason that was shown last
  std::size_t names_ = 5, count_ = 0, width_ = 0, wide_ = 0;
  bool together_ = false;
  std::string out_;
};

Paint paint_of(Result::Verdict verdict) {
  switch (verdict) {
    case Result::Verdict::passed:
      return Paint::good;
    case Result::Verdict::failed:
    case Result::Verdict::error:
      return Paint::bad;
    case Result::Verdict::skipped:
      break;
  }
  return Paint::dim;
}

std::string paragraph(const std::string& text, Paint paint, const Style& style, std::size_t indent = 0) {
  Block block;
  add(block, text, style.width, paint, indent);
  std::string out;
  for (const Line& line : block) out += painted(line.text, line.paint, style) + "\n";
  return out;
}

}  // namespace

Style style_of(int descriptor) noexcept {
  Style style;
  if (isatty(descriptor) != 1) return style;
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    style.width = std::max<std::size_t>(size.ws_col, 20);
  const char* const no_color = std::getenv("NO_COLOR");
  style.colour = no_color == nullptr || *no_color == '\0';
  return style;
}

std::string_view to_string(Result::Verdict verdict) noexcept {
  switch (verdict) {
    case Result::Verdict::passed:
      return "passed";
    case Result::Verdict::failed:
      return "failed";
    case Result::Verdict::error:
      return "error";
    case Result::Verdict::skipped:
      return "skipped";
  }
  return "?";
}

std::string Result::str(const Style& asked) const {
  const Style style{std::max<std::size_t>(asked.width, 20), asked.colour};
  std::string out = paragraph(clean(scenario), Paint::bold, style, 2);
  std::string where =
      clean(engine) + (version.empty() ? "" : " " + clean(version)) + ": " + std::string(to_string(verdict));
  if (took > std::chrono::nanoseconds::zero()) where += " in " + print::brief_time(took);
  if (!proves.empty()) where += "; proves " + list(proves, ", ");
  out += paragraph(where, paint_of(verdict), style, 2);
  if (!events.empty()) out += "\n" + Lanes(*this, style).str();
  std::string whys;
  for (const Event& event : events) {
    if (event.why.empty()) continue;
    const std::string name = event.kind == Event::Kind::step    ? event.name
                             : event.kind == Event::Kind::setup ? "setup"
                                                                : "check";
    whys += paragraph(print::fit_begin(clean(name), style.width / 3) + ": " + clean(event.why),
                      event.passed ? Paint::none : Paint::bad, style, 3);
  }
  if (!whys.empty()) out += "\n" + whys;
  if (!message.empty()) out += "\n" + paragraph(clean(message), paint_of(verdict), style, 2);
  return out;
}

bool Permuted::deadlocks() const noexcept {
  return std::any_of(classes.begin(), classes.end(), [](const Class& each) { return each.deadlock; });
}

std::string Permuted::str(const Style& asked) const {
  const Style style{std::max<std::size_t>(asked.width, 20), asked.colour};
  std::string out = paragraph(clean(scenario), Paint::bold, style, 2);
  out +=
      paragraph(clean(engine) + ": " + print::grouped(schedules) + (schedules == 1 ? " schedule, " : " schedules, ") +
                    (complete ? "all that can happen" : "not all that can happen") +
                    (bounds.empty() ? "" : " " + bounds) + "; " + (deadlocks() ? "some deadlock" : "none deadlocks"),
                deadlocks() ? Paint::bad : Paint::good, style, 2);
  if (classes.empty()) return out;
  // What is of one width goes first: outcomes and schedules are as long as they are.
  using Align = print::Table::Align;
  print::Table table({{"schedules", Align::right}, {"share", Align::right}, {"outcome"}});
  for (const Class& each : classes) {
    const std::uint64_t permille = schedules == 0 ? 0 : (each.schedules * 1'000 + schedules / 2) / schedules;
    table.add({print::grouped(each.schedules),
               std::to_string(permille / 10) + "." + std::to_string(permille % 10) + "%", ""});
  }
  const std::string text = table.str();
  std::size_t from = text.find('\n') + 1;
  const std::size_t indent = columns(std::string_view(text).substr(0, text.find("outcome")));
  out += "\n" + painted(print::fit_begin(text.substr(0, from - 1), style.width), Paint::dim, style) + "\n";
  for (const Class& each : classes) {
    const std::size_t end = text.find('\n', from);
    std::string line = text.substr(from, end - from);
    line.resize(indent, ' ');
    from = end + 1;
    out += paragraph(line + clean(each.outcome), each.deadlock ? Paint::bad : Paint::none, style, indent);
    out += paragraph(std::string(indent, ' ') + "as in: " + list(each.schedule, " "), Paint::dim, style, indent + 2);
  }
  return out;
}

}  // namespace hierlock::lab
