#include "witness.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <system_error>
#include <utility>

namespace storm {

namespace {

constexpr std::uint64_t unit(unsigned mode) { return std::uint64_t{1} << (8 * mode); }
constexpr std::uint64_t counts_of(std::uint64_t word) { return word & 0xFFFFFFFF; }
constexpr std::uint32_t incarnation_of(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }
constexpr Modes modes_of(std::uint64_t word) {
  Modes modes = 0;
  for (unsigned mode = 0; mode < 4; ++mode) {
    if ((word >> (8 * mode) & 0xFF) != 0) modes |= Modes{1} << mode;
  }
  return modes;
}

std::string modes_text(Modes modes) {
  std::string text;
  for (const hierlock::Mode mode : hierlock::all_modes) {
    if ((modes & bit(mode)) != 0) text += (text.empty() ? "" : "+") + std::string(hierlock::to_string(mode));
  }
  return text;
}

void nap() {
  const timespec time{0, 50'000};
  nanosleep(&time, nullptr);
}

}  // namespace

const char* to_string(State state) {
  constexpr std::array<const char*, state_count> names{"not started", "opening",         "idle",
                                                       "in acquire",  "waiting",         "holding",
                                                       "extending",   "extend, waiting", "in release"};
  return names[static_cast<std::size_t>(state) % state_count];
}

std::int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

std::string Inside::text() const {
  std::string text;
  for (std::size_t place = 0; place < places().size(); ++place) {
    if (modes[place] == 0) continue;
    text += (text.empty() ? "" : ", ") + places()[place].text + " (" + modes_text(modes[place]) + ")";
  }
  return text + " with fence " + std::to_string(fence);
}

// --- the file --------------------------------------------------------------------------------------------

Witness::Witness(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) throw std::system_error(errno, std::generic_category(), path);
  const int failed = posix_fallocate(file, 0, sizeof(Shared));
  void* const address =
      failed == 0 ? mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  const int error = failed != 0 ? failed : errno;
  close(file);
  if (address == MAP_FAILED) throw std::system_error(error, std::generic_category(), path);
  shared_ = static_cast<Shared*>(address);  // zeros are a good beginning for all of it
}

void Witness::violation(const std::string& text) const {
  const std::uint32_t number = shared_->violations.fetch_add(1);
  if (number >= std::size(shared_->violation)) return;
  Violation& v = shared_->violation[number];
  const std::size_t size = std::min(text.size(), sizeof v.text - 1);
  std::memcpy(v.text, text.data(), size);
  v.text[size] = 0;
  v.ready.store(1);
}

void Witness::end_break(Row& row) const {
  const std::uint32_t place = row.breaking.exchange(0);
  if (place != 0) shared_->breaks_ended[place - 1].fetch_add(1);
}

std::string Witness::about(std::size_t worker) const {
  const Row& r = row(worker);
  const std::uint32_t incarnation = r.incarnation.load();
  std::string text = "worker " + std::to_string(worker) + "." + std::to_string(incarnation) + " (pid " +
                     std::to_string(r.pid.load()) + ", " + to_string(r.state.load());
  if (r.doomed.load() == incarnation) text += ", killed";
  std::string inside;
  for (std::size_t place = 0; place < places().size(); ++place) {
    const std::uint64_t word = r.inside[place].load();
    if (word == 0) continue;
    inside += (inside.empty() ? "" : ", ") + places()[place].text + " (" + modes_text(modes_of(word)) + ")";
  }
  if (!inside.empty()) text += "; inside " + inside;
  if (const std::uint32_t place = r.about_to.load(); place != 0) {
    text += "; journal: about to count " + places()[(place - 1) % places().size()].text + " from " +
            std::to_string(r.from.load());
  }
  return text + ")";
}

// --- who is inside ---------------------------------------------------------------------------------------

void Testimony::mark(const Inside& inside, int direction) const {
  const std::uint64_t mine = std::uint64_t{row_.incarnation.load(std::memory_order_relaxed)} << 32;
  row_.moves.fetch_add(1);
  for (std::size_t place = 0; place < places().size(); ++place) {
    const Modes modes = inside.modes[place];
    if (modes == 0) continue;
    std::uint64_t counts = counts_of(row_.inside[place].load(std::memory_order_relaxed));
    for (unsigned mode = 0; mode < 4; ++mode) {
      if ((modes >> mode & 1) == 0) continue;
      counts = direction > 0 ? counts + unit(mode) : counts - unit(mode);
    }
    row_.inside[place].exchange(counts == 0 ? 0 : mine | counts);  // ordered: marked, then looked
  }
}

// A mark that is in the way is no violation if its maker was killed, and killed before we were let in; or if it was
// inside an extend() that took its lock away. `extend` was read before the mark was.
bool Testimony::excused(std::size_t other, std::uint64_t extend, std::uint64_t seen, std::int64_t since) const {
  const Row& its = witness_.row(other);
  const std::int64_t until = now_ns() + 5'000'000'000 * slowness;
  for (;;) {
    const std::uint32_t doomed = its.doomed.load();
    if (doomed > incarnation_of(seen)) return true;
    const std::uint64_t now = its.extend.load();
    if (its.extend_lost.load() >= (extend | 1)) return true;
    if (doomed == incarnation_of(seen)) return its.doomed_at[doomed % 4].load() <= since || now % 2 != 0;
    if (now % 2 == 0 || now_ns() > until) return false;
    nap();
  }
}

void Testimony::endanger(int place) const {
  const auto p = static_cast<std::size_t>(place);
  if (row_.breaks_seen[p].load() != 0) return;
  const std::uint64_t ended = witness_.all().breaks_ended[p].load();
  const std::uint64_t begun = witness_.all().breaks_begun[p].load();
  row_.breaks_seen[p].store(begun == ended ? begun + 1 : UINT64_MAX);  // one under way may still meet it
}

void Testimony::begin_break(int place) const {
  row_.breaking.store(static_cast<std::uint32_t>(place) + 1);
  witness_.all().breaks_begun[place].fetch_add(1);
}

void Testimony::endanger_no_more() const {
  for (Word<std::uint64_t>& seen : row_.breaks_seen) seen.store(0);
}

bool Testimony::maybe_broken(std::size_t worker) const {
  for (std::size_t place = 0; place < places().size(); ++place) {
    const std::uint64_t seen = witness_.row(worker).breaks_seen[place].load();
    if (seen != 0 && seen != witness_.all().breaks_begun[place].load() + 1) return true;
  }
  return false;
}

// One of the two who meet at a breakable place was broken there, or the other has moved on since it was seen: it had
// made `moves` moves before its mark was read, and notes other breaks only when it has taken the mark away.
bool Testimony::excused_by_a_break(std::size_t place, std::size_t other, std::uint64_t moves) const {
  if (!places()[place].breakable) return false;
  return maybe_broken(me_) || maybe_broken(other) || witness_.row(other).moves.load() != moves;
}

void Testimony::look_for_others(const Inside& inside) const {
  for (std::size_t place = 0; place < places().size(); ++place) {
    if (inside.modes[place] == 0) continue;
    if (places()[place].slots > 1) {
      look_at_slots(place, inside);
      continue;
    }
    const Modes bad = conflicts_with(inside.modes[place]);
    for (std::size_t other = 0; other < workers_; ++other) {
      if (other == me_) continue;
      const std::uint64_t moves = witness_.row(other).moves.load();
      const std::uint64_t extend = witness_.row(other).extend.load();
      const std::uint64_t seen = witness_.row(other).inside[place].load();
      if ((modes_of(seen) & bad) == 0 || excused_by_a_break(place, other, moves)) continue;
      const std::string about = witness_.about(other);
      if (excused(other, extend, seen, inside.since[place])) continue;
      violation("exclusion: not alone in " + places()[place].text + " (" + modes_text(inside.modes[place]) +
                "), held as " + inside.text() + "\n  there is " + about + ", marked " + modes_text(modes_of(seen)) +
                " as " + std::to_string(other) + "." + std::to_string(incarnation_of(seen)));
    }
  }
}

// Too many were inside at once only if nobody of them moved from before the first was counted until after the last.
void Testimony::look_at_slots(std::size_t place, const Inside& inside) const {
  struct Other {
    std::size_t worker;
    std::uint64_t moves, extend, word;
  };
  const auto count = [](std::uint64_t word) { return word >> (8 * static_cast<unsigned>(hierlock::Mode::X)) & 0xFF; };
  const auto counts = [](const Row& row, std::uint64_t word) {
    return row.doomed.load() < incarnation_of(word) && row.extend.load() % 2 == 0;
  };
  for (int tries = 0; tries < 1000; ++tries) {
    std::vector<Other> others;
    std::uint64_t number = count(row_.inside[place].load());
    for (std::size_t other = 0; other < workers_; ++other) {
      const Row& row = witness_.row(other);
      const Other seen{other, row.moves.load(), row.extend.load(), row.inside[place].load()};
      if (other == me_ || count(seen.word) == 0 || !counts(row, seen.word)) continue;
      number += count(seen.word);
      others.push_back(seen);
    }
    if (number <= places()[place].slots) return;
    const bool all_still = std::all_of(others.begin(), others.end(), [&](const Other& seen) {
      const Row& row = witness_.row(seen.worker);
      return !excused_by_a_break(place, seen.worker, seen.moves) && row.inside[place].load() == seen.word &&
             counts(row, seen.word) && row.extend.load() == seen.extend && row.moves.load() == seen.moves;
    });
    if (!all_still) continue;
    std::string who;
    for (const Other& seen : others) who += "\n  there is " + witness_.about(seen.worker);
    violation("slots: " + std::to_string(number) + " inside of " + places()[place].text + ", held as " + inside.text() +
              who);
    return;
  }
}

void Testimony::look_at_fences(const Inside& inside) const {
  if (inside.fence <= 0) violation("fence: " + std::to_string(inside.fence) + " is not above 0; " + inside.text());
  for (std::size_t place = 0; place < places().size(); ++place) {
    if (inside.modes[place] == 0 || places()[place].slots > 1) continue;
    const Modes bad = conflicts_with(inside.modes[place]);
    for (std::size_t other = 0; other < workers_; ++other) {
      for (unsigned mode = 0; mode < 4; ++mode) {
        const std::int64_t fence = witness_.row(other).fence[place][mode].load();
        if ((bad >> mode & 1) == 0 || fence < inside.fence) continue;
        // Ours was granted before the other's, and broken before we came to look.
        if (places()[place].breakable && maybe_broken(me_)) continue;
        violation("fence: " + places()[place].text + " was held in " + modes_text(Modes{1} << mode) + " with fence " +
                  std::to_string(fence) + " by worker " + std::to_string(other) + " before; now held as " +
                  inside.text());
      }
    }
  }
  for (std::size_t place = 0; place < places().size(); ++place) {
    for (unsigned mode = 0; mode < 4; ++mode) {
      if ((inside.modes[place] >> mode & 1) == 0) continue;
      Word<std::int64_t>& mine = row_.fence[place][mode];
      if (mine.load(std::memory_order_relaxed) < inside.fence) mine.store(inside.fence);
    }
  }
}

void Testimony::remember_values(Inside& inside) const {
  inside.values.clear();
  for (std::size_t place = 0; place < places().size(); ++place) {
    // Whoever is in IS, IX, S or X keeps everybody from writing here; and S or X also from writing below.
    bool mine = inside.modes[place] != 0 && places()[place].slots <= 1;
    for (const int above : places()[place].above) {
      mine = mine ||
             (inside.modes[static_cast<std::size_t>(above)] & (bit(hierlock::Mode::S) | bit(hierlock::Mode::X))) != 0;
    }
    if (mine) inside.values.emplace_back(static_cast<int>(place), witness_.all().counters[place].value);
  }
}

void Testimony::enter(Inside& inside) const {
  inside.since.fill(inside.granted_at);
  mark(inside, 1);
  look_for_others(inside);
  look_at_fences(inside);
  remember_values(inside);
}

void Testimony::look_again(const Inside& inside) const {
  for (const auto& [place, seen] : inside.values) {
    const std::uint64_t now = witness_.all().counters[static_cast<std::size_t>(place)].value;
    if (now == seen) continue;
    const std::uint64_t step = witness_.all().counters[static_cast<std::size_t>(place)].made[seen % ring].load();
    violation("counter: " + places()[static_cast<std::size_t>(place)].text + " went from " + std::to_string(seen) +
              " to " + std::to_string(now) + " (by worker " + std::to_string(step >> 22 & 0x3FF) +
              ") while nobody else may write; held as " + inside.text());
  }
}

void Testimony::leave(Inside& inside) const {
  look_again(inside);
  look_for_others(inside);
  mark(inside, -1);
  inside.modes.fill(0);
}

void Testimony::extended(Inside& inside, const Inside& more) const {
  look_again(inside);
  if (more.fence <= inside.fence) {
    violation("fence: extending gave " + std::to_string(more.fence) + " after " + std::to_string(inside.fence) + "; " +
              inside.text());
  }
  Inside fresh;
  fresh.since.fill(more.granted_at);
  inside.granted_at = more.granted_at;
  fresh.fence = inside.fence = more.fence;
  for (std::size_t place = 0; place < places().size(); ++place) {
    fresh.modes[place] = more.modes[place] & ~inside.modes[place];
    inside.modes[place] |= more.modes[place];
    if (fresh.modes[place] != 0) inside.since[place] = more.granted_at;
  }
  mark(fresh, 1);
  row_.extend.fetch_add(1);
  look_for_others(fresh);
  look_at_fences(inside);
  remember_values(inside);
}

void Testimony::lost_by_extend(Inside& inside) const {
  row_.extend_lost.store(row_.extend.load());
  broken_in_extend(inside);
}

void Testimony::broken_in_extend(Inside& inside) const {
  mark(inside, -1);
  inside.modes.fill(0);
  row_.extend.fetch_add(1);
}

// --- counting --------------------------------------------------------------------------------------------

// The step that led to `value` was made by somebody, and the one from it by nobody yet.
void Testimony::look_at_step(int place, std::uint64_t value) const {
  Counter& counter = witness_.all().counters[static_cast<std::size_t>(place)];
  const auto made = [&](std::uint64_t from) { return counter.made[from % ring].load(); };
  const auto is_of = [](std::uint64_t step, std::uint64_t from) {
    return step != 0 && step >> 32 == (from & 0xFFFFFFFF);
  };
  if (is_of(made(value), value)) {
    violation("lost update: " + places()[static_cast<std::size_t>(place)].text + " says " + std::to_string(value) +
              " again, but worker " + std::to_string(made(value) >> 22 & 0x3FF) + "." +
              std::to_string(made(value) & 0x3FFFFF) + " counted on from there");
  }
  // Its maker died between writing the value and saying so. Whether there was such a one the supervisor adds up.
  if (value > 0 && !is_of(made(value - 1), value - 1)) {
    counter.made[(value - 1) % ring].store(((value - 1) & 0xFFFFFFFF) << 32 | 0x3FFull << 22);
  }
}

void Testimony::begin_step(int place, std::uint64_t from) const {
  look_at_step(place, from);
  row_.from.store(from);
  row_.ordinal.store(row_.counted[place].load() + 1);
  row_.about_to.store(static_cast<std::uint32_t>(place) + 1);
}

void Testimony::end_step(int place, std::uint64_t from) const {
  witness_.all().counters[static_cast<std::size_t>(place)].made[from % ring].store(maker(from));
  row_.counted[place].fetch_add(1);
  row_.about_to.store(0);
}

}  // namespace storm
