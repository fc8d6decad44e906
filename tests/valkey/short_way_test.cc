// The short way of locks.lua does what the long way would do: the same random steps go to two tables, one of which the
// short way is cut off from. Time is the test's, so answers, fences, leases and queues must be equal.
// HIERLOCK_SEED repeats a run.
#include <hiredis/hiredis.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <vector>

#include "on_valkey.h"

namespace hierlock::valkey_tests {
namespace {

using Words = std::vector<std::string>;

// Decodes both tables, compares them, and checks the invariant of locks.lua on each. Returns what is wrong.
// KEYS: T, L and Q of the table with the short way, then those of the other.
constexpr const char* check_lua = R"lua(
local FITS = {{true, true, true, false}, {true, true, false, false}, {true, false, true, false}, {false, false, false, false}}
local wrong = {}
local function expect(fact, ...) if not fact then wrong[#wrong + 1] = table.concat({...}, ' ') end end

local function request_of(packed)
  local v = {cmsgpack.unpack(packed)}
  if type(v[1]) == 'table' then return v[1] end
  local r = {e = v[1], f = v[2], s = v[3], q = v[4], l = v[5], c = v[6], n = {}, m = {}, a = {}, b = {}, i = 1, p = false, k = true}
  for i = 7, #v, 2 do r.n[#r.n + 1], r.m[#r.m + 1] = v[i], v[i + 1] end
  return r
end

local function read(which, T, L, Q)
  local t = {which = which, nodes = {}, requests = {}, gone = {}, leases = {}, queue = {}, fields = {}}
  local all = redis.call('HGETALL', T)
  for i = 1, #all, 2 do
    local kind, name = all[i]:sub(1, 1), all[i]:sub(2)
    if kind == 'n' then t.nodes[name] = {unpack({struct.unpack('>I4I4I4I4I4I4I4I4I4', all[i + 1])}, 1, 9)}
    elseif kind == 'r' then t.requests[name] = request_of(all[i + 1])
    elseif kind == 't' then t.gone[name] = all[i + 1]
    else t.fields[all[i]] = all[i + 1] end
  end
  local one = t.fields.a
  if one then
    t.fields.x, t.fields.f, t.fields.e = one:sub(1, 13), string.format('%.0f', one:sub(14, 29)), '0'
    expect(#all == (t.fields.s and 4 or 2), which, 'has more than a')
    if #one > 29 then
      local id, lease, question, part, session, channel, list =
        one:match('^(%S+) (%d+) (%d+) (%d+) %d (%S+) (%S+) (.*)$', 43)
      local r = {e = part, f = tonumber(one:sub(14, 29)), s = session, q = question, l = lease, c = channel, p = false, k = true}
      r.n, r.m = {}, {}
      for name, held, slots in list:gmatch('([^\n]+)\n(%d)\n(%d+)') do
        local mode = tonumber(held)
        r.n[#r.n + 1], r.m[#r.m + 1] = name, mode
        t.nodes[name] = {0, 0, 0, 0, 0, 0, 0, 0, tonumber(slots)}
        t.nodes[name][mode] = 1
      end
      t.requests[id], t.leases[id] = r, tonumber(one:sub(30, 42))
    end
  end
  local first = math.huge
  local function lease(id, ends)
    first = math.min(first, ends)
    t.leases[id] = math.max(t.leases[id] or 0, ends)
  end
  local scores = redis.call('ZRANGE', L, 0, -1, 'WITHSCORES')
  for i = 1, #scores, 2 do lease(scores[i], tonumber(scores[i + 1])) end
  for id, ends in (t.fields.u or ''):gmatch('(%S+) (%d+) ') do lease(id, tonumber(ends)) end
  for _, member in ipairs(redis.call('ZRANGE', Q, 0, -1)) do t.queue[member] = true end
  if t.fields.x then
    expect(t.leases['-'] and t.queue['-'], which, 'has lost a key')
    expect(tonumber(t.fields.e) <= first, which, 'e is', t.fields.e, 'and a lease ends at', first)
  else
    expect(#all == 0, which, 'has no x')
  end
  return t
end

local function invariant(t)
  local counts, waiters, waiting = {}, {}, 1
  for name, n in pairs(t.nodes) do counts[name], waiters[name] = {0, 0, 0, 0, 0, 0, 0, 0, n[9]}, {} end
  for id, r in pairs(t.requests) do
    expect(t.leases[id], t.which, id, 'has no lease')
    expect((t.leases[id] or 0) <= tonumber(t.fields.x), t.which, id, 'outlives the keys')
    expect(r.p or (r.f or 0) <= tonumber(t.fields.f), t.which, id, 'has a fence above f')
    for at, name in ipairs(r.n) do
      local mode = r.m[at]
      if mode > 0 then
        expect(counts[name], t.which, id, 'holds', name, 'which has no counts')
        if counts[name] then counts[name][mode] = counts[name][mode] + 1 end
      end
    end
    if r.p then
      local at, mode = r.a[2 * r.i - 1], r.a[2 * r.i]
      local name = r.n[at]
      waiting = waiting + 1
      expect(t.queue[mode .. #name .. ':' .. name .. r.w .. id], t.which, id, 'is not in the queue of', name)
      for i = 1, r.i - 1 do expect(r.m[r.a[2 * i - 1]] == r.a[2 * i], t.which, id, 'has left out a node') end
      expect(counts[name], t.which, id, 'waits for', name, 'which has no counts')
      if counts[name] then
        counts[name][4 + mode] = counts[name][4 + mode] + 1
        table.insert(waiters[name], {id = id, m = mode, has = r.m[at], w = r.w})
      end
    end
  end
  local queued = 0
  for _ in pairs(t.queue) do queued = queued + 1 end
  expect(queued == (t.fields.x and waiting or 0), t.which, 'has', queued, 'in queues, and', waiting, 'are right')
  for name, n in pairs(t.nodes) do
    expect(table.concat(n, ' ') == table.concat(counts[name], ' '), t.which, 'counts of', name, unpack(n))
    for m = 1, n[9] > 0 and 0 or 4 do
      for o = 1, m do
        expect(FITS[m][o] or n[m] == 0 or n[o] == (m == o and 1 or 0), t.which, 'holders of', name, unpack(n))
      end
    end
    expect(n[9] == 0 or n[4] <= n[9], t.which, 'more than', n[9], 'hold', name)
    local first = {}
    for _, w in ipairs(waiters[name]) do first[w.m] = math.min(first[w.m] or math.huge, tonumber(w.w)) end
    for _, w in ipairs(waiters[name]) do
      local blocked = n[9] > 0 and n[4] >= n[9]
      for m = 1, 4 do
        local held = n[9] == 0 and n[m] > (m == w.has and 1 or 0)
        blocked = blocked or (not FITS[w.m][m] and (held or (first[m] or math.huge) < tonumber(w.w)))
      end
      expect(blocked, t.which, w.id, 'waits for', name, 'and nobody is in its way')
    end
  end
end

local function told(value)
  if type(value) ~= 'table' then return tostring(value) end
  local items = {}
  for i, item in ipairs(value) do items[i] = tostring(item) end
  return table.concat(items, ' ')
end

local function same(what, a, b, say)
  say = say or told
  for key, value in pairs(a) do
    local other = b[key] ~= nil and say(b[key]) or 'nothing'
    expect(say(value) == other, what, key, 'short:', say(value), 'long:', other)
  end
  for key, value in pairs(b) do expect(a[key] ~= nil, what, key, 'short: nothing, long:', say(value)) end
end

local function names_of(set)
  local names = {}
  for name in pairs(set) do names[#names + 1] = name end
  table.sort(names)
  return names
end

local function request_told(r)
  local parts = {r.e, told(r.n), told(r.m), told(r.f), r.s, r.q, r.l, r.c, told(r.p), told(r.w), told(r.x)}
  if r.x then parts[11] = told(names_of(r.x)) end
  for i = 1, 11 do parts[i] = parts[i] or 'nil' end
  -- What the last part asked for is needed to undo it. A request that this part has made goes as a whole.
  if r.p or not r.k then parts[12] = told(r.a) .. '/' .. told(r.b) .. '/' .. r.i end
  return table.concat(parts, ', ')
end

local short, long = read('short', KEYS[1], KEYS[2], KEYS[3]), read('long', KEYS[4], KEYS[5], KEYS[6])
invariant(short)
invariant(long)
same('node', short.nodes, long.nodes)
same('request', short.requests, long.requests, request_told)
same('given back', short.gone, long.gone)
same('queue', short.queue, long.queue)
same('field', {f = short.fields.f, s = short.fields.s}, {f = long.fields.f, s = long.fields.s})
for id in pairs(short.requests) do
  expect(short.leases[id] == long.leases[id], 'lease of', id, told(short.leases[id]), told(long.leases[id]))
end
return table.concat(wrong, '\n')
)lua";

// A connection that sends many commands before it reads the answers.
class Pipe {
 public:
  explicit Pipe(const std::string& url) {
    const std::size_t begin = url.find("//") + 2, at = url.find('@', begin), host = at + 1;
    const std::size_t colon = url.find(':', begin), end = url.find_first_of("/?", host), port = url.rfind(':', end);
    context_.reset(redisConnect(url.substr(host, port - host).c_str(), std::stoi(url.substr(port + 1))));
    if (context_ == nullptr || context_->err != 0) throw std::runtime_error("no connection to the server");
    redisSetTimeout(context_.get(), {60, 0});
    send({"AUTH", url.substr(begin, colon - begin), url.substr(colon + 1, at - colon - 1)});
    receive();
  }
  void send(const Words& words) {
    std::vector<const char*> texts;
    std::vector<std::size_t> sizes;
    for (const std::string& word : words) {
      texts.push_back(word.data());
      sizes.push_back(word.size());
    }
    redisAppendCommandArgv(context_.get(), static_cast<int>(texts.size()), texts.data(), sizes.data());
  }
  std::string receive() {
    void* reply = nullptr;
    if (redisGetReply(context_.get(), &reply) != REDIS_OK) throw std::runtime_error("the server does not answer");
    const std::unique_ptr<redisReply, decltype(&freeReplyObject)> owned(static_cast<redisReply*>(reply),
                                                                        freeReplyObject);
    return text_of(*owned);
  }
  std::string ask(const Words& words) {
    send(words);
    return receive();
  }

 private:
  static std::string text_of(const redisReply& reply) {
    if (reply.type == REDIS_REPLY_INTEGER) return std::to_string(reply.integer);
    if (reply.type != REDIS_REPLY_ARRAY) return reply.str == nullptr ? "" : std::string(reply.str, reply.len);
    std::string items;
    for (std::size_t i = 0; i < reply.elements; ++i) items += (i > 0 ? " " : "") + text_of(*reply.element[i]);
    return items;
  }

  std::unique_ptr<redisContext, decltype(&redisFree)> context_{nullptr, redisFree};
};

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  if (at == text.npos || text.find(from, at + 1) != text.npos) {
    throw std::runtime_error("locks.lua has changed, and this test must: " + from);
  }
  return text.replace(at, from.size(), to);
}

// The script, by the clock of KEYS[4]. It goes through a hash in the order of names, which is the same on both tables.
std::string timed_script() {
  std::ifstream file(HIERLOCK_LOCKS_LUA);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return replaced(
      text, "local call = redis.call\n",
      "local function in_order(key)\n"
      "  local names, all = redis.call('HKEYS', key), {}\n"
      "  table.sort(names)\n"
      "  for i, name in ipairs(names) do all[2 * i - 1], all[2 * i] = name, redis.call('HGET', key, name) end\n"
      "  return all\n"
      "end\n"
      "local function call(name, ...)\n"
      "  if name == 'TIME' then return redis.call('HMGET', KEYS[4], 's', 'us') end\n"
      "  if name == 'HGETALL' then return in_order(...) end\n"
      "  return redis.call(name, ...)\n"
      "end\n");
}

std::string short_way_counted(const std::string& script) {
  const auto counted = [](const std::string& kind) {
    return "if alone then redis.call('HINCRBY', KEYS[4], ARGV[1] .. '" + kind + "', 1) return alone end";
  };
  const std::string of_one = "\nif alone then return alone end", of_some = "  if alone then return alone end";
  return replaced(replaced(script, of_one, "\n" + counted("1")), of_some, "  " + counted(""));
}

std::string short_way_cut_off(const std::string& script) {
  return replaced(replaced(script, "local alone = lone and step_of_one(lone)", "local alone"), "\nif not lone then\n",
                  "\nif false then\n");
}

struct Step {
  std::int64_t at_us;
  Words words;
};

std::string text_of(const Step& step) {
  std::string text = std::to_string(step.at_us) + ":";
  for (const std::string& word : step.words) text += " " + word;
  return text;
}

// Steps as clients could ask for them, in any order. No id is taken once more after a renewal and a release that was
// answered: clients do not do that.
class Steps {
 public:
  explicit Steps(std::uint32_t seed) : random_(seed) {}

  std::vector<Step> all(std::size_t count) {
    while (steps_.size() < count) {
      if (steps_.size() >= crowd_ends_) new_crowd();
      pass_time();
      one();
    }
    for (const Id& id : ids_) drop({"drop", id.name, "0", "0", "0", "0"});
    return std::move(steps_);
  }

 private:
  struct Id {
    std::string name, lease;
    int part = 0, question = 1;
    bool renewed = false, released = false, over = false;
    Words last_take{};
  };

  int number(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }
  bool chance(int percent) { return number(100) < percent; }
  std::string flag(int percent) { return chance(percent) ? "1" : "0"; }
  std::string any_lease() { return std::to_string(leases_ms[static_cast<std::size_t>(number(3))]); }
  std::string floor() { return chance(10) ? std::to_string(now_us_ + number(2000)) : "0"; }
  std::string node(int at) const { return (at < 2 ? "s" : "u") + std::to_string(100 + at); }

  void new_crowd() {
    crowd_ends_ = steps_.size() + 300;
    lonely_ = calm_ && !lonely_;
    calm_ = lonely_ || !calm_;
    if (lonely_) now_us_ += 130'000'000;  // all leases end, those of what was given back, too
    nodes_ = calm_ ? 100 : 3 + number(30);
    strong_ = calm_ ? 10 : 10 + number(60);
    alive_ = 3 + static_cast<std::size_t>(number(12));
  }
  void pass_time() {
    now_us_ += number(200);
    if (chance(30)) now_us_ += number(5'000);
    if (lonely_ && !chance(10)) return;
    if (chance(3)) now_us_ += number(3'000) * 1000;
    if (chance(1)) now_us_ += number(70'000) * 1000;
  }
  void add(Words words) {
    for (const int ms : leases_ms) ends_.insert(now_us_ / 1000 + ms);
    if (words[0] != "drop") expired_us_ = now_us_;
    steps_.push_back({now_us_, std::move(words)});
  }
  // The short way of a drop leaves leases that have ended to the next step, so they end before it.
  void drop(Words words) {
    const auto end = ends_.upper_bound(expired_us_ / 1000);
    if (end != ends_.end() && *end <= now_us_ / 1000) add({"free", "0"});
    add(std::move(words));
  }
  Id& some_id() {
    const std::size_t from = ids_.size() > alive_ ? ids_.size() - alive_ : 0;
    return ids_[from + random_() % (ids_.size() - from)];
  }
  void add_nodes(Words& words) {
    std::set<int> chosen;
    for (int i = 1 + number(4); i > 0; --i) chosen.insert(number(nodes_));
    for (const int at : chosen) {
      const bool slots = at < 2;
      const int mode = slots ? 4 : (chance(strong_) ? 3 : 1) + number(2);
      words.insert(words.end(), {node(at), std::to_string(mode), slots ? (chance(5) ? "4" : "3") : "0"});
    }
  }
  void take(Id& id, bool known) {
    id.last_take = {
        "take",  id.name,           std::to_string(id.part),      flag(60), id.lease, "hl:x", id.name.substr(1),
        floor(), known ? "1" : "0", std::to_string(id.question++)};
    add_nodes(id.last_take);
    add(id.last_take);
  }
  // One request at a time.
  void alone() {
    if (ids_.empty() || ids_.back().over) {
      if (chance(5)) now_us_ += 70'000'000;  // what was given back late is forgotten
      ids_.push_back({"a" + std::to_string(ids_.size() + 1), any_lease(), chance(10) ? 1 : 0});
      return take(ids_.back(), false);
    }
    Id& id = ids_.back();
    if (chance(40)) {
      id.renewed = true;
      return add({"renew", id.lease, id.name, "0", chance(90) ? "0" : floor(), "0"});
    }
    id.over = id.released = true;
    drop({"drop", id.name, "0", floor(), "0", "0"});
  }
  void one() {
    if (lonely_ && chance(98)) return alone();
    constexpr int mostly[] = {0, 50, 80};  // take, drop, renew
    const int kind = ids_.empty() ? 0 : calm_ && chance(90) ? mostly[number(3)] : number(100);
    if (kind < 33) {
      ids_.push_back({"a" + std::to_string(ids_.size() + 1), any_lease(), chance(10) ? 1 : 0});
      return take(ids_.back(), false);
    }
    Id& id = some_id();
    const std::string part = std::to_string(std::max(0, id.part + 1 - number(3)));
    if (kind < 43) {
      ++id.part;
      take(id, id.released || chance(80));
    } else if (kind < 48) {
      if (!id.released) add(id.last_take);
    } else if (kind < 72) {
      const bool unanswered = chance(15);
      id.released = id.released || (id.renewed && !unanswered);
      drop({"drop", id.name, "0", floor(), "0", unanswered ? "1" : "0"});
    } else if (kind < 79) {
      id.released = id.released || (id.renewed && part == "0");
      drop({"drop", id.name, part, floor(), flag(60), flag(30)});
    } else if (kind < 92) {
      Words words{"renew", id.lease};  // a client has one lease
      for (int i = 1 + number(3); i > 0; --i) {
        Id& one_of_them = some_id();
        if (one_of_them.lease != id.lease) continue;
        one_of_them.renewed = true;
        words.insert(words.end(), {one_of_them.name, flag(15), floor(), chance(10) ? std::to_string(number(3)) : "0"});
      }
      if (words.size() > 2) add(words);
    } else if (kind < 95) {
      add({"break", node(number(nodes_))});
    } else if (kind < 98) {
      add({"free", flag(80), id.name, some_id().name});
    } else {
      Words words{"view"};
      for (const Id& each : ids_) words.push_back(each.name.substr(1));
      add(words);
    }
  }

  static constexpr int leases_ms[] = {1000, 5000, 20'000, 60'000};  // the last: of what was given back
  std::mt19937 random_;
  std::int64_t now_us_ = 1'800'000'000'000'000, expired_us_ = 0;
  bool calm_ = false;    // nearly nobody waits, so nearly each step can go the short way
  bool lonely_ = false;  // nearly always there is one request at most, so it can go the shortest
  int nodes_ = 0, strong_ = 0;
  std::size_t alive_ = 0, crowd_ends_ = 0;
  std::vector<Id> ids_;
  std::set<std::int64_t> ends_;
  std::vector<Step> steps_;
};

class ShortWay : public OnValkey {
 protected:
  void SetUp() override {
    OnValkey::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    pipe_ = std::make_unique<Pipe>(server_variable(GetParam() + "_OPERATOR").value());
    const std::string script = timed_script();
    short_ = pipe().ask({"SCRIPT", "LOAD", short_way_counted(script)});
    long_ = pipe().ask({"SCRIPT", "LOAD", short_way_cut_off(script)});
    check_ = pipe().ask({"SCRIPT", "LOAD", check_lua});
    ASSERT_EQ(check_.size(), 40u) << check_;
    ASSERT_EQ(short_.size(), 40u) << short_;
    ASSERT_EQ(long_.size(), 40u) << long_;
  }
  Pipe& pipe() { return *pipe_; }
  std::string key(const char* name) const { return "hl:" + table() + ":{" + name + "}"; }
  Words keys(const char* name) const { return {key(name), key(name) + ":l", key(name) + ":q"}; }
  std::string count_of_short_way(const std::string& step) { return pipe().ask({"HGET", key("clock"), step}); }

  Words fields() {
    Words names;
    std::istringstream all(pipe().ask({"HKEYS", key("short")}));
    for (std::string name; all >> name;) names.push_back(name);
    return names;
  }

  void set_clock(std::int64_t us) {
    pipe().send({"HSET", key("clock"), "s", std::to_string(us / 1'000'000), "us", std::to_string(us % 1'000'000)});
  }
  void send_step(const std::string& script, const char* name, const Words& step) {
    Words words{"EVALSHA", script, "4"};
    for (const std::string& one : keys(name)) words.push_back(one);
    words.push_back(key("clock"));
    const Words of_step = step[0] == "take" ? take_words(step) : step;
    words.insert(words.end(), of_step.begin(), of_step.end());
    pipe().send(words);
  }
  void send_check() {
    Words words{"EVALSHA", check_, "6"};
    for (const char* name : {"short", "long"}) {
      for (const std::string& one : keys(name)) words.push_back(one);
    }
    pipe().send(words);
  }

  // Until something differs. False: it did. A look at all of both tables costs more than ten steps.
  bool play(const std::vector<Step>& steps, std::size_t look_each = 10) {
    const auto is_checked = [&](std::size_t at) { return at % look_each == 0 || at + 1 == steps.size(); };
    constexpr std::size_t at_once = 100;
    for (std::size_t from = 0; from < steps.size(); from += at_once) {
      const std::size_t end = std::min(from + at_once, steps.size());
      for (std::size_t i = from; i < end; ++i) {
        set_clock(steps[i].at_us);
        send_step(short_, "short", steps[i].words);
        send_step(long_, "long", steps[i].words);
        if (is_checked(i)) send_check();
      }
      bool well = true;
      for (std::size_t i = from; i < end; ++i) {
        pipe().receive();
        const std::string by_short = pipe().receive(), by_long = pipe().receive();
        const std::string wrong = is_checked(i) ? pipe().receive() : "";
        if (!well || (by_short == by_long && wrong.empty() && !by_short.starts_with("ERR"))) continue;
        well = false;
        std::string before;
        for (std::size_t j = i < 15 ? 0 : i - 15; j <= i; ++j) before += "  " + text_of(steps[j]) + "\n";
        ADD_FAILURE() << "step " << i << ", the last of\n"
                      << before << "short: " << by_short << "\nlong:  " << by_long << "\n"
                      << wrong;
      }
      if (!well) return false;
    }
    return true;
  }

 private:
  std::unique_ptr<Pipe> pipe_;
  std::string short_, long_, check_;
};

TEST_P(ShortWay, random_steps_come_to_the_same_as_by_the_long_way) {
  const char* const given = std::getenv("HIERLOCK_SEED");
  const std::uint32_t seed = given != nullptr ? static_cast<std::uint32_t>(std::stoul(given)) : std::random_device()();
  const char* const more = std::getenv("HIERLOCK_STEPS");
  SCOPED_TRACE("HIERLOCK_SEED=" + std::to_string(seed));
  std::cout << "HIERLOCK_SEED=" << seed << "\n";
  ASSERT_TRUE(play(Steps(seed).all(more != nullptr ? std::stoul(more) : 3000)));
  for (const char* const field : {"take", "drop", "renew", "take1", "drop1", "renew1"}) {
    EXPECT_GT(std::stoi("0" + count_of_short_way(field)), 20) << field << " has hardly ever gone the short way";
  }
  for (const std::string& field : fields()) {
    EXPECT_TRUE(field[0] != 'n' && field[0] != 'r') << field << " is left, and all requests were given back";
  }
}

// Up to about a thousand nodes go the short way. A command of a script takes some thousand arguments at most.
TEST_P(ShortWay, large_requests_come_to_the_same_as_by_the_long_way) {
  std::vector<Step> steps;
  std::int64_t now_us = 1'800'000'000'000'000;
  const auto add = [&](Words words, const std::string& mode = "", int nodes = 0) {
    for (int i = 0; i < nodes; ++i) words.insert(words.end(), {"u" + std::to_string(10'000 + i), mode, "0"});
    steps.push_back({now_us += 100, std::move(words)});
  };
  const auto take = [](const std::string& id, const std::string& part = "0") {
    return Words{"take", id, part, "1", "600000", "hl:x", "7", "0", part == "0" ? "0" : "1", "1"};
  };
  for (const int nodes : {996, 997, 1100}) {
    const std::string a = "a" + std::to_string(nodes), b = "b" + std::to_string(nodes);
    add(take(a), "2", nodes);
    add(take(b), "1", nodes);
    add({"renew", "600000", a, "0", "0", "0", b, "0", "0", "0"});
    add(take(a, "1"), "4", nodes - 1);  // waits for b
    add({"drop", b, "0", "0", "0", "0"});
    add({"renew", "600000", a, "1", "0", "0"});
    add({"drop", a, "1", "0", "1", "0"});
    add(take(b, "0"), "2", nodes);
    add({"drop", a, "0", "0", "0", "0"});
    add({"drop", b, "0", "0", "0", "0"});
  }
  ASSERT_TRUE(play(steps, 1));
  steps.clear();
  Words many{"renew", "600000"};
  for (int i = 0; i < 1005; ++i) {
    add(take("c" + std::to_string(i)), "1", 1);
    many.insert(many.end(), {"c" + std::to_string(i), "0", "0", "0"});
    if (i == 998 || i == 999 || i == 1004) add(many);
  }
  add({"view", "7"});
  add(take("d"), "4", 1);
  add({"break", "u10000"});
  ASSERT_TRUE(play(steps, 200));
}

// A holder that has renewed its lock since loses it when its lease ends by the new time.
TEST_P(ShortWay, a_clock_that_was_set_back_comes_to_the_same) {  // B4
  const std::int64_t begin = 1'800'000'000'000'000, back = begin - 3'600'000'000;
  const auto take = [](const char* id, const char* node) {
    return Words{"take", id, "0", "1", "20000", "hl:x", "7", "0", "0", "1", node, "4", "0"};
  };
  const std::vector<Step> steps{{begin, {"free", "0"}},
                                {begin, take("a", "u1")},
                                {begin + 1, take("b", "u2")},
                                {back, {"renew", "20000", "a", "0", "0", "0"}},
                                {back + 1, take("c", "u3")},
                                {back + 10'000'000, {"renew", "20000", "b", "0", "0", "0"}},
                                {back + 25'000'000, take("d", "u1")},
                                {back + 25'000'001, take("e", "u2")},
                                {back + 25'000'002, {"renew", "20000", "c", "0", "0", "0", "d", "0", "0", "0"}},
                                {begin + 1'000'000, take("f", "u2")}};
  ASSERT_TRUE(play(steps, 1));
}

// The lease of the take is in u, that of the renewal in L. The later one counts, and so it does for an id that was
// given back and is taken once more.
TEST_P(ShortWay, the_latest_lease_of_a_request_counts) {  // B4
  const std::int64_t begin = 1'800'000'000'000'000, second = 1'000'000;
  const auto take = [](const char* id, const char* node) {
    return Words{"take", id, "0", "0", "20000", "hl:x", "7", "0", "0", "1", node, "4", "0"};
  };
  ASSERT_TRUE(play({{begin, {"drop", "f", "0", "0", "0", "0"}},  // makes the keys
                    {begin, take("a", "u1")},
                    {begin, take("b", "u2")},
                    {begin + 1 * second, {"drop", "b", "0", "0", "0", "0"}},
                    {begin + 5 * second, {"renew", "20000", "a", "0", "0", "0"}},
                    {begin + 6 * second, take("b", "u2")},
                    {begin + 22 * second, take("c", "u1")},
                    {begin + 22 * second, take("c", "u2")},
                    {begin + 25 * second, take("d", "u1")},
                    {begin + 25 * second, take("c", "u2")},
                    {begin + 26 * second, take("e", "u2")}},
                   1));
  EXPECT_EQ(count_of_short_way("take"), "3");
  EXPECT_EQ(count_of_short_way("drop"), "1");
  EXPECT_EQ(count_of_short_way("renew"), "1");
}

// The first step for a long time must not leave the keys with less time than its lease.
TEST_P(ShortWay, the_keys_outlive_a_lease_that_begins_late) {
  const std::int64_t begin = 1'800'000'000'000'000, second = 1'000'000;
  const auto take = [](const char* id) {
    return Words{"take", id, "0", "1", "600000", "hl:x", "7", "0", "0", "1", "u1", "1", "0"};
  };
  ASSERT_TRUE(play({{begin, take("a")},
                    {begin, {"drop", "a", "0", "0", "0", "1"}},
                    {begin + 100 * second, {"free", "0"}},
                    {begin + 1000 * second, take("b")},
                    {begin + 1599 * second, {"renew", "600000", "b", "0", "0", "0"}},
                    {begin + 2198 * second, take("c")},
                    {begin + 2198 * second, {"drop", "b", "0", "0", "0", "0"}}},
                   1));
}

HIERLOCK_ON_VALKEY_AND_REDIS(ShortWay);

}  // namespace
}  // namespace hierlock::valkey_tests
