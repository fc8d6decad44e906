#include <hierlock/target.h>

#include <algorithm>
#include <optional>

#include <hierlock/error.h>
#include <hierlock/spi/plan.h>

#include "plan/node_hash.h"
#include "plan/path.h"
#include "plan/text.h"

namespace hierlock {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::invalid_argument, message); }

bool cut_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// A number of slots as it is printed: decimal, no sign, no leading zero. None if it is anything else.
std::optional<std::uint32_t> read_count(std::string_view digits) {
  if (digits.empty() || digits.size() > 7 || digits[0] == '0') return std::nullopt;
  std::uint32_t count = 0;
  for (const char digit : digits) {
    if (digit < '0' || digit > '9') return std::nullopt;
    count = count * 10 + static_cast<std::uint32_t>(digit - '0');
  }
  return count;
}

}  // namespace

Target::Target(std::string_view path) {
  const spi::PathText text(path);
  depth_ = static_cast<std::uint8_t>(text.depth());
  key_ = text.key(text.depth() - 1);
  for (std::size_t level = 0; level < depth_; ++level) {
    hashes_[level] = text.hash(level);
    ends_[level] = static_cast<std::uint16_t>(text.key(level).size());
  }
}

Target Target::path(std::span<const std::string_view> segments) {
  if (segments.empty()) refuse("the path has no segments; give it 1 to " + std::to_string(max_depth));
  if (segments.size() > max_depth) {
    refuse("the path has " + std::to_string(segments.size()) + " segments, more than " + std::to_string(max_depth) +
           "; join ids");
  }
  Target target;
  plan::NodeHash hash(Space::path);
  for (const std::string_view segment : segments) {
    const std::size_t level = target.depth_;
    plan::check_segment(segment, level);
    plan::append_to_key(target.key_, segment);
    hash.add(segment);
    target.hashes_[level] = hash.value();
    target.ends_[level] = static_cast<std::uint16_t>(target.key_.size());
    ++target.depth_;
  }
  return target;
}

Target Target::path(std::initializer_list<std::string_view> segments) {
  return path(std::span<const std::string_view>(segments.begin(), segments.size()));
}

Target Target::parse(std::string_view text) {
  std::string_view rest = text;
  const bool is_shared = cut_prefix(rest, "shared ");
  const bool is_name = rest.starts_with("named \"");
  const bool is_slots = rest.starts_with("slots \"");
  if (is_shared && rest.starts_with("shared ")) {
    refuse("\"shared\" is there twice: " + plan::excerpt(text) + "; a space that belongs to an id is %20");
  }
  if (!is_name && !is_slots) return is_shared ? shared(Target(rest)) : Target(rest);

  rest.remove_prefix(6);  // `named ` or `slots `
  std::string why;
  const std::optional<std::string> name = plan::read_quoted(rest, why);
  if (!name) refuse("malformed name: " + plan::excerpt(text) + ": " + why);
  if (is_name) {
    if (!rest.empty()) refuse("unexpected " + plan::excerpt(rest) + " after the name; remove it");
    return is_shared ? shared(named(*name)) : named(*name);
  }
  const bool spaced = cut_prefix(rest, " ");
  const std::optional<std::uint32_t> count = read_count(rest);
  if (!spaced || !count) {
    refuse("malformed number of slots in " + plan::excerpt(text) + "; write slots \"NAME\" N with N from 1 to " +
           std::to_string(max_slots));
  }
  Target target = slots(*name, *count);
  return is_shared ? shared(std::move(target)) : target;
}

std::string Target::str() const {
  std::string text;
  switch (space_) {
    case Space::path:
      for (std::size_t level = 0; level < depth_; ++level) {
        if (level > 0) text += '/';
        plan::append_to_text(text, segment(level));
      }
      plan::escape_lookalike(text);
      break;
    case Space::name:
      text = "named " + plan::quote(segment(0));
      break;
    case Space::slots:
      text = "slots " + plan::quote(segment(0)) + " " + std::to_string(slots_);
      break;
  }
  return shared_ ? "shared " + text : text;
}

std::string_view Target::segment(std::size_t level) const noexcept {
  const std::string_view whole = key(level);
  const std::size_t begin = level == 0 ? 4 : ends_[level - 1] + 4u;
  return whole.substr(std::min(begin, whole.size()));  // a moved-from target has no bytes
}

Target shared(Target target) {
  if (target.space_ == Space::slots) {
    refuse("slots cannot be shared: " + plan::excerpt(target.str()) + "; use slots with a larger number, or a name");
  }
  target.shared_ = true;
  return target;
}

Target named(std::string_view name) {
  plan::check_name(name);
  Target target;
  target.space_ = Space::name;
  target.depth_ = 1;
  plan::append_to_key(target.key_, name);
  plan::NodeHash hash(Space::name, name.size());
  hash.add(name);
  target.hashes_[0] = hash.value();
  target.ends_[0] = static_cast<std::uint16_t>(target.key_.size());
  return target;
}

Target slots(std::string_view name, std::uint32_t count) {
  if (count == 0 || count > max_slots) {
    refuse("the number of slots is " + std::to_string(count) + "; use 1 to " + std::to_string(max_slots));
  }
  plan::check_name(name);
  Target target;
  target.space_ = Space::slots;
  target.depth_ = 1;
  target.slots_ = count;
  plan::append_to_key(target.key_, name);
  plan::NodeHash hash(Space::slots, name.size());
  hash.add(name);
  target.hashes_[0] = hash.value();
  target.ends_[0] = static_cast<std::uint16_t>(target.key_.size());
  return target;
}

}  // namespace hierlock
