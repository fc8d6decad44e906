#!lua flags=allow-oom
-- Locks of one root: everything that can conflict is under one hash tag, so one script sees all of it. The server runs a
-- script as one step. (allow-oom: a release must work when memory is short, and no command may fail half-way.)
--
-- KEYS are T, a hash, T:l = L and T:q = Q, sorted sets. All three exist, or none: L and Q have the member `-` as long as T
-- has the field x. A cluster moves keys one by one. It refuses a script (TRYAGAIN) while some of KEYS are at one node and some
-- at another, and a command inside of a script that would make a key there, too.
--   T  n<node>   holders by mode (4 numbers), waiters by mode (4), number of slots (0: no slots node)
--   T  r<id>     a request: e its last part, d the last part that was dropped, n nodes, m modes that it holds of these (0: none), a what its last part asks for
--                (place in n, mode, …), b the modes before that, i how far it has got, p it waits there, f fence,
--                o what its next fence must be above, k its last part has made it, l lease, c channel, s session,
--                q the client's number of the question, w its place in Q. Each message and renewal that tells of a grant has it, so that the
--                client takes none for the answer to a later question
--   T  t<id>     a request that was given back, up to this part, while a question for it may still be on its way; ids begin
--                with a digit or a to f
--   T  r<id>x    what a broken request still has, until it is dropped, or its lease ends
--   T  f, s, x   the last fence, the last place in a queue, until when the keys live, in ms
--   L  id        when its lease ends, by this server's clock, in ms
--   T  u         the same for requests that came a moment ago: `ID TIME ` for each
--   T  e         no lease ends before this time
--   T  a         instead of all of these but s, while at most one request has anything here: x (13 digits) and f (16). If there is
--                one: when its lease ends (13), and `ID LEASE QUESTION MORE NODES` of its take
--   Q  <mode><node><place><id>: who waits for a node and mode, in their order. All have the score 0, so they are in the order
--                of their bytes
-- Modes: 1 IS, 2 IX, 3 S, 4 X.
--
-- INVARIANT, after each script:
--   1. The modes that different requests hold of one node are compatible; of a node with slots at most so many hold it.
--      The counts of a node are those of the requests.
--   2. Each request in T has its lease in L or in u. A lease of a request that is not in T means nothing, and goes when
--      its time comes. A request whose lease has ended is removed before anything is decided that it could be in the
--      way of.
--   3. A request takes its nodes in the one order of all processes. A waiting request holds all nodes before the one it
--      waits for, and is in that one's queue only.
--   4. A waiting request is in conflict with a holder of its node, or with an earlier waiter there. A request that holds
--      the node in a weaker mode comes before those that do not hold it.
--   5. f is the highest fence given out here, and none is below the time of its grant in microseconds.
--
-- Each call of redis.call() costs about as much as the rest of a step, and each field that it writes a quarter of that. So a
-- step that meets nobody, which is nearly every one, has a short way of its own at the beginning. It does what the long way
-- would do, or leaves the step to it. The shortest reads and writes one field (a).
-- Each step costs a few commands for each node of the request and each request that is granted or removed by it.
local T, L, Q = KEYS[1], KEYS[2], KEYS[3]
local LONGEST_LEASE, NEVER, RECENT = 600000, 2 ^ 52, 500
local COUNTS = '>I4I4I4I4I4I4I4I4I4'
local call = redis.call

-- A step of the only request that has anything here. A lease that has ended is left to the long way.
local function step_of_one(lone)
  local step, x, f = ARGV[1], lone:sub(1, 13), lone:sub(14, 29)
  if step == 'drop' then
    if ARGV[3] ~= '0' or ARGV[6] == '1' or lone:sub(43, 43 + #ARGV[2]) ~= ARGV[2] .. ' ' then return end
    if tonumber(ARGV[4]) > tonumber(f) then f = string.format('%016.0f', ARGV[4]) end
    call('HSET', T, 'a', x .. f)
    return {'busy'}
  end
  local takes = step == 'take' and #lone == 29 and ARGV[5] == '0'
  local renews = step == 'renew' and #ARGV == 6 and ARGV[4] == '0' and ARGV[5] == '0' and ARGV[6] == '0' and
                 lone:sub(43, 43 + #ARGV[3]) == ARGV[3] .. ' '
  if not takes and not renews then return end
  local time = call('TIME')
  local us = time[1] * 1000000 + time[2]
  local now = math.floor(us / 1000)
  if now + LONGEST_LEASE > tonumber(x) then return end
  if renews then
    if now >= tonumber(lone:sub(30, 42)) then return end
    call('HSET', T, 'a', x .. f .. string.format('%013.0f', now + ARGV[2]) .. lone:sub(43))
    return {{'held'}}
  end
  f = string.format('%016.0f', math.max(f + 1, us, ARGV[4] + 1))
  call('HSET', T, 'a', x .. f .. string.format('%013.0f', now + ARGV[3]) ..
    ARGV[2] .. ' ' .. ARGV[3] .. ' ' .. ARGV[6] .. ' ' .. ARGV[7] .. ' ' .. ARGV[8])
  return {'granted', f, ARGV[6]}
end

-- Before the other functions are made, which takes time, too.
local lone = call('HGET', T, 'a')
local alone = lone and step_of_one(lone)
if alone then return alone end

-- MORE and NODES of a take: its part, whether it waits, session and channel; and NODE MODE SLOTS for each node.
local function more_in(text)
  local part, wait, session, channel = text:match('^(%d+) (%d) (%S+) (%S+)')
  return tonumber(part), wait == '1', session, channel
end
local function nodes_in(text)
  local list = {}
  for name, mode, slots in text:gmatch('([^\n]+)\n(%d)\n(%d+)') do
    list[#list + 1], list[#list + 2], list[#list + 3] = name, tonumber(mode), tonumber(slots)
  end
  return list
end

-- The counts of a node that one request holds, by mode.
local ONE = {
  '\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0',
  '\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0',
  '\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0',
  '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
}

-- A new request, whose nodes nobody waits for or holds in a mode in conflict. No lease has ended.
local function take_alone()
  local id, fields = ARGV[2], {'f', 'e', 'x', 'u', 't' .. ARGV[2], 'r' .. ARGV[2]}
  local list = nodes_in(ARGV[8])
  if #list > 3000 then return end
  for i = 1, #list, 3 do
    if list[i + 2] > 0 then return end
    fields[#fields + 1] = 'n' .. list[i]
  end
  local got, time = call('HMGET', T, unpack(fields)), call('TIME')
  local us, first, recent = time[1] * 1000000 + time[2], tonumber(got[2]) or 0, got[4] or ''
  local now = math.floor(us / 1000)
  if got[5] or got[6] or now >= first or #recent > RECENT then return end
  if now + LONGEST_LEASE > (tonumber(got[3]) or 0) then return end
  local fence = math.max((tonumber(got[1]) or 0) + 1, us, ARGV[4] + 1)
  local ends, granted = now + ARGV[3], string.format('%.0f', fence)
  local part, _, session, channel = more_in(ARGV[7])
  local r = {part, fence, session, ARGV[6], tonumber(ARGV[3]), channel}
  local set = {T, 'f', granted, 'u', recent .. id .. ' ' .. ends .. ' '}
  for i = 7, #fields do
    local name, mode, packed = list[3 * i - 20], list[3 * i - 19], got[i]
    if packed then
      local n = {struct.unpack(COUNTS, packed)}
      if mode == 4 or n[4] > 0 or (mode == 2 and n[3] > 0) or (mode == 3 and n[2] > 0) then return end
      if n[5] + n[6] + n[7] + n[8] + n[9] > 0 then return end
      n[mode] = n[mode] + 1
      packed = struct.pack(COUNTS, unpack(n, 1, 9))
    end
    r[#r + 1], r[#r + 2] = name, mode
    set[#set + 1], set[#set + 2] = fields[i], packed or ONE[mode]
  end
  set[#set + 1], set[#set + 2] = fields[6], cmsgpack.pack(unpack(r))
  if ends < first then set[#set + 1], set[#set + 2] = 'e', ends end
  call('HSET', unpack(set))
  return {'granted', granted, ARGV[6]}
end

-- All of a request that take_alone() has made, and whose nodes nobody waits for.
local function drop_alone()
  local id = ARGV[2]
  local got = call('HMGET', T, 'f', 'u', 'r' .. id)
  if not got[3] or tonumber(ARGV[4]) > tonumber(got[1]) then return end
  local r, fields, gone, set = {cmsgpack.unpack(got[3])}, {}, {T, 'r' .. id}, {T}
  if type(r[1]) == 'table' then return end
  for i = 7, #r, 2 do fields[#fields + 1] = 'n' .. r[i] end
  for i, packed in ipairs(call('HMGET', T, unpack(fields))) do
    local mode = r[6 + 2 * i]
    if packed == ONE[mode] then
      gone[#gone + 1] = fields[i]
    else
      local n = {struct.unpack(COUNTS, packed)}
      if n[5] + n[6] + n[7] + n[8] + n[9] > 0 then return end
      n[mode] = n[mode] - 1
      set[#set + 1], set[#set + 2] = fields[i], struct.pack(COUNTS, unpack(n, 1, 9))
    end
  end
  -- f, e, x, s and u may be all that would be left: then the long way makes `a` of them.
  if #set == 1 and call('HLEN', T) - (#gone - 1) <= 5 then return end
  if got[2] and got[2]:sub(1, #id + 1) == id .. ' ' and not got[2]:find(' ', #id + 16, true) then gone[#gone + 1] = 'u' end
  call('HDEL', unpack(gone))
  if #set > 1 then call('HSET', unpack(set)) end
  return {'busy'}
end

-- Requests that hold their locks. No lease has ended, and the new ones do not end before e: the clock may have been set back.
local function renew_alone()
  local fields = {'e', 'x'}
  if #ARGV > 3000 then return end
  for i = 3, #ARGV, 4 do
    if ARGV[i + 1] ~= '0' or ARGV[i + 2] ~= '0' or ARGV[i + 3] ~= '0' then return end
    fields[#fields + 1] = 'r' .. ARGV[i]
  end
  local got, time = call('HMGET', T, unpack(fields)), call('TIME')
  local now, set, answers = time[1] * 1000 + math.floor(time[2] / 1000), {}, {}
  local first = tonumber(got[1]) or 0
  if now >= first or now + ARGV[2] < first or now + LONGEST_LEASE > (tonumber(got[2]) or 0) then return end
  for i = 3, #fields do
    local kind = got[i] and got[i]:byte()
    -- A table (see cmsgpack) may be a request that waits: its client may know of a grant that this server has lost.
    if not kind or (kind >= 0x80 and kind <= 0x8f) or kind == 0xde then return end
    set[#set + 1], set[#set + 2] = now + ARGV[2], fields[i]:sub(2)
    answers[#answers + 1] = {'held'}
  end
  call('ZADD', L, unpack(set))
  return answers
end

if not lone then
  if ARGV[1] == 'take' and ARGV[5] == '0' then
    alone = take_alone()
  elseif ARGV[1] == 'drop' and ARGV[3] == '0' and ARGV[6] ~= '1' then
    alone = drop_alone()
  elseif ARGV[1] == 'renew' then
    alone = renew_alone()
  end
  if alone then return alone end
end

local KEEP, GONE, BEFORE, MOST_IN_VIEW, MOST_IN_BREAK = 1260000, 60000, 2 ^ 45, 5000, 50000
local FITS = {{true, true, true, false}, {true, true, false, false}, {true, false, true, false}, {false, false, false, false}}
local STRONGEST = {{1, 2, 3, 4}, {2, 2, 4, 4}, {3, 4, 3, 4}, {4, 4, 4, 4}}
local time = call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
local last, stored, sequence, lives_until = nil, nil, nil, nil
local nodes, requests, given_back, touched = {}, {}, {}, {}

local function text(number) return string.format('%.0f', number) end

-- A request as the long way has it. take_alone() keeps PART FENCE SESSION QUESTION LEASE CHANNEL, then
-- NODE MODE for each node.
local function unpacked(packed)
  local values = {cmsgpack.unpack(packed)}
  if type(values[1]) == 'table' then return values[1] end
  local r = {e = values[1], f = values[2], s = values[3], q = values[4], l = values[5], c = values[6], n = {}, m = {}}
  r.a, r.b, r.i, r.p, r.k = {}, {}, 1, false, true
  for i = 7, #values, 2 do r.n[#r.n + 1], r.m[#r.m + 1] = values[i], values[i + 1] end
  return r
end

-- Reads fields of T in one command: each call costs more than what it does. What was read before stays.
local function fetch(fields)
  for from = 1, #fields, 1000 do
    local some = {unpack(fields, from, math.min(from + 999, #fields))}
    for i, value in ipairs(call('HMGET', T, unpack(some))) do
      local kind, key = some[i]:sub(1, 1), some[i]:sub(2)
      if kind == 'n' then
        nodes[key] = nodes[key] or (value and {struct.unpack(COUNTS, value)} or {0, 0, 0, 0, 0, 0, 0, 0, 0})
      elseif kind == 'r' then
        if requests[key] == nil then requests[key] = value and unpacked(value) or false end
      elseif kind == 't' then
        given_back[key] = tonumber(value)
      elseif kind == 'x' then
        lives_until = tonumber(value)
      else
        stored = tonumber(value) or 0
      end
    end
  end
end

local function highest() return last or stored or tonumber(call('HGET', T, 'f')) or 0 end

local function node(name)
  local n = nodes[name]
  if not n then
    local packed = call('HGET', T, 'n' .. name)
    n = packed and {struct.unpack(COUNTS, packed)} or {0, 0, 0, 0, 0, 0, 0, 0, 0}
    nodes[name] = n
  end
  return n
end

local function request(id)
  if requests[id] == nil then
    local packed = call('HGET', T, 'r' .. id)
    requests[id] = packed and unpacked(packed) or false
  end
  return requests[id]
end

-- No queue's name begins with another one's. Places have digits only, and `:` comes after these.
local function queue(mode, name) return mode .. #name .. ':' .. name end
local function first_of(mode, name)
  local q = queue(mode, name)
  local head = call('ZRANGE', Q, '[' .. q .. '0', '(' .. q .. ':', 'BYLEX', 'LIMIT', 0, 1)[1]
  if head then return head:sub(#q + 17), head:sub(#q + 1, #q + 16) end
end

-- Whether another holder is in the way of `mode` for a request that has the node in the mode `held`.
local function taken(n, mode, held)
  if n[9] > 0 then return n[4] >= n[9] end
  for m = 1, 4 do
    if n[m] > (m == held and 1 or 0) and not FITS[mode][m] then return true end
  end
  return false
end

local function waited_for(n, mode)
  for m = 1, 4 do
    if n[4 + m] > 0 and not FITS[mode][m] then return true end
  end
  return false
end

local function set_mode(r, at, mode)
  local n = node(r.n[at])
  if r.m[at] > 0 then n[r.m[at]] = n[r.m[at]] - 1 end
  if mode > 0 then n[mode] = n[mode] + 1 end
  r.m[at] = mode
end

local function stuck(r) return r.a[2 * r.i - 1], r.a[2 * r.i] end

local function leave_queue(id, r)
  local at, mode = stuck(r)
  local n = node(r.n[at])
  call('ZREM', Q, queue(mode, r.n[at]) .. r.w .. id)
  n[4 + mode] = n[4 + mode] - 1
  r.p, r.w = false, nil
end

-- Takes node after node. True: it has all of them, and a fence. False: it waits, or would have to.
local function advance(id, r, wait)
  while 2 * r.i <= #r.a do
    local at, mode = stuck(r)
    local n, held = node(r.n[at]), r.m[at]
    if mode ~= held then
      if taken(n, mode, held) or (held == 0 and waited_for(n, mode)) then
        if wait then
          sequence = (sequence or tonumber(call('HGET', T, 's')) or 0) + 1
          r.w = string.format('%016.0f', held > 0 and sequence or sequence + BEFORE)
          call('ZADD', Q, 0, queue(mode, r.n[at]) .. r.w .. id)
          n[4 + mode] = n[4 + mode] + 1
          r.p = true
        end
        return false
      end
      set_mode(r, at, mode)
    end
    r.i = r.i + 1
  end
  last = math.max(highest() + 1, us, r.o + 1)
  r.f = last
  return true
end

-- Grants what can be granted at a node that something was given back of. If the first waiter for a mode must wait, so must
-- all others for this mode: the next to look at is the first of another one.
local function settle(name)
  local n, barred = node(name), {}
  while true do
    local id, first, mode
    for m = 1, 4 do
      if n[4 + m] > 0 and not barred[m] then
        local waiter, place = first_of(m, name)
        if waiter and (not first or place < first) then id, first, mode = waiter, place, m end
      end
    end
    if not id then return end
    local r = request(id)
    if not (r and r.p) then -- never, by the invariant; but an entry of nobody would block the node for good
      call('ZREM', Q, queue(mode, name) .. first .. id)
      n[4 + mode] = n[4 + mode] - 1
      r = nil
    end
    local blocked = r and taken(n, mode, r.m[(stuck(r))])
    for m = 1, 4 do blocked = blocked or (barred[m] and not FITS[mode][m]) end
    if blocked then
      barred[mode] = true
    elseif r then
      leave_queue(id, r)
      set_mode(r, stuck(r))
      r.i = r.i + 1
      -- Without the right to publish the waiter finds out by itself.
      if advance(id, r, true) then redis.pcall('PUBLISH', r.c, id .. ' ' .. r.q .. ' ' .. text(r.f) .. ' ' .. T) end
    end
  end
end

local function settle_touched()
  local names = touched
  touched = {}
  for _, name in ipairs(names) do settle(name) end
end

local function give_back(r, at, mode)
  if r.m[at] == mode then return end
  set_mode(r, at, mode)
  touched[#touched + 1] = r.n[at]
end

local function remove(id)
  local r = request(id)
  if not r then return end
  if r.p then
    touched[#touched + 1] = r.n[(stuck(r))]
    leave_queue(id, r)
  end
  for at = 1, #r.n do give_back(r, at, 0) end
  call('ZREM', L, id)
  requests[id] = false
end

-- What the last part of a request has added.
local function undo(id, r)
  if r.p then
    touched[#touched + 1] = r.n[(stuck(r))]
    leave_queue(id, r)
  end
  for i = 1, #r.b do give_back(r, r.a[2 * i - 1], r.b[i]) end
  while #r.m > 0 and r.m[#r.m] == 0 do
    r.m[#r.m] = nil
    r.n[#r.n] = nil
  end
  r.a, r.b, r.i = {}, {}, 1
end

-- What a tells, as the long way has it.
local function expand()
  if not lone then return end
  stored, lives_until = tonumber(lone:sub(14, 29)), tonumber(lone:sub(1, 13))
  local set = {'f', text(stored), 'x', text(lives_until), 'e', text(NEVER)}
  if #lone > 29 then
    local ends, id, lease, question, more = lone:sub(30, 42), lone:match('^(%S+) (%d+) (%d+) (%d+ %d %S+ %S+) ', 43)
    local part, _, session, channel = more_in(more)
    local r = {e = part, f = stored, s = session, q = question, l = tonumber(lease), c = channel}
    r.n, r.m, r.a, r.b, r.i, r.p, r.k = {}, {}, {}, {}, 1, false, true
    local list = nodes_in(lone:sub(43 + #id + 1 + #lease + 1 + #question + 1 + #more + 1))
    for i = 1, #list, 3 do
      local name, mode = list[i], list[i + 1]
      r.n[#r.n + 1], r.m[#r.m + 1] = name, mode
      nodes[name] = {0, 0, 0, 0, 0, 0, 0, 0, list[i + 2]}
      nodes[name][mode] = 1
    end
    requests[id] = r
    set[#set + 1], set[#set + 2] = 'r' .. id, cmsgpack.pack(r)
    call('ZADD', L, ends, id)
  end
  call('HSET', T, unpack(set))
  call('HDEL', T, 'a')
end

-- From u to L. What a request has got there since is later.
local function index()
  local recent, fields, set = call('HGET', T, 'u'), {}, {}
  if not recent then return end
  for id in recent:gmatch('(%S+) %d+ ') do fields[#fields + 1] = 'r' .. id end
  local known, at = call('HMGET', T, unpack(fields)), 0
  for id, ends in recent:gmatch('(%S+) (%d+) ') do
    at = at + 1
    if known[at] then set[#set + 1], set[#set + 2] = ends, id end
  end
  if #set > 0 then call('ZADD', L, 'GT', unpack(set)) end
  call('HDEL', T, 'u')
end

local function expire()
  index()
  repeat
    local ended = call('ZRANGEBYSCORE', L, '-inf', now, 'LIMIT', 0, 100)
    for _, id in ipairs(ended) do
      remove(id)
      call('ZREM', L, id)
      if id:sub(1, 1) == 't' then call('HDEL', T, id) end
    end
  until #ended < 100
  settle_touched()
end

local function state(r)
  if r.p then return {'waiting'} end
  if not r.f then return {'gone'} end -- its only part was undone while it waited
  return {'granted', text(r.f), r.q}
end

local function used(n)
  for i = 1, 8 do
    if n[i] > 0 then return true end
  end
  return false
end

-- A question for it may still be on its way, on a connection that was given up. It must not come to hold anything.
local function keep_out(id, part)
  call('HSET', T, 't' .. id, text(math.max(part == 0 and BEFORE or part, given_back[id] or 0)))
  call('ZADD', L, text(now + GONE), 't' .. id)
end

-- take ID LEASE FLOOR KNOWN QUESTION MORE NODES. MORE: `PART WAIT SESSION CHANNEL`. NODES: NODE MODE SLOTS for each node in
-- the one order, a line each. (Each argument costs time, so those that the shortest way does not read are together.)
-- KNOWN: 0, or one more than the last part that the client knows to be granted here. A server that lost its last writes may
-- know an earlier one only. Then the request does not hold all that its client relies on: it is gone.
local function take()
  local id, fields, list = ARGV[2], {'f', 'x', 'r' .. ARGV[2], 't' .. ARGV[2]}, nodes_in(ARGV[8])
  local part, wait, session, channel = more_in(ARGV[7])
  local known, question = tonumber(ARGV[5]), ARGV[6]
  for i = 1, #list, 3 do fields[#fields + 1] = 'n' .. list[i] end
  fetch(fields)
  local r, is_new = request(id), false
  if not r and (given_back[id] or -1) >= part then return {'gone'} end
  if r and (r.e < known - 1 or (r.p and r.e == known - 1)) then return {'gone'} end
  if r and r.d and r.d >= part then return r.f and {'busy'} or {'gone'} end -- its drop came first
  if r and tonumber(question) > tonumber(r.q) then r.q = question end -- a question that was given up may come late
  if r and r.e >= part then -- asked once more, because the answer was lost. The lease counts from this question
    call('ZADD', L, text(now + r.l), id)
    return state(r)
  end
  if r and r.p then -- the drop of its last part is still to come
    undo(id, r)
    settle_touched()
  end
  if not r and known > 0 then return {'gone'} end
  for i = 1, #list, 3 do
    local slots, n = list[i + 2], node(list[i])
    if slots > 0 and n[9] > 0 and n[9] ~= slots and used(n) then return {'slots', list[i], tostring(n[9])} end
    if slots > 0 then n[9] = slots end
  end
  if not r then
    r, is_new = {n = {}, m = {}, c = channel, s = session, l = tonumber(ARGV[3]), q = question}, true
  end
  local place = {}
  for at, name in ipairs(r.n) do place[name] = at end
  r.a, r.b, r.i, r.p, r.o, r.k = {}, {}, 1, false, tonumber(ARGV[4]), is_new
  for i = 1, #list, 3 do
    local at, mode = place[list[i]], list[i + 1]
    if not at then
      at = #r.n + 1
      r.n[at], r.m[at] = list[i], 0
    end
    if r.m[at] > 0 then mode = STRONGEST[r.m[at]][mode] end
    r.a[#r.a + 1], r.a[#r.a + 2], r.b[#r.b + 1] = at, mode, r.m[at]
  end
  local granted = advance(id, r, wait)
  if not granted and not r.p then
    undo(id, r)
    touched = {} -- nothing has changed
    return {'busy'}
  end
  r.e = part
  requests[id] = r
  call('ZADD', L, text(now + r.l), id)
  return state(r)
end

-- drop ID PART FLOOR FORCE UNANSWERED: PART 0: all that the request has. Otherwise what that part has added; unless FORCE is
-- 1, only if it still waits. UNANSWERED 1: a question of this request was given up.
local function drop()
  fetch({'f', 'x', 'r' .. ARGV[2], 't' .. ARGV[2]})
  local id, part, r = ARGV[2], tonumber(ARGV[3]), request(ARGV[2])
  local fields = {}
  for at, name in ipairs(r and r.n or {}) do fields[at] = 'n' .. name end
  fetch(fields)
  last = math.max(highest(), tonumber(ARGV[4]))
  if not r then
    if part == 0 and request(id .. 'x') then
      remove(id .. 'x')
      settle_touched()
    end
    keep_out(id, part)
    return {'gone'}
  end
  if r.e < part then -- the same for a part
    if r.p then undo(id, r) end
    r.d = part
    settle_touched()
    return {'busy'}
  end
  if part > 0 and part == r.e and not r.p and ARGV[5] ~= '1' then return state(r) end
  if part == 0 or (part == r.e and r.k) then
    remove(id)
    if ARGV[6] == '1' or (part > 0 and r.d) then keep_out(id, part == 0 and 0 or math.max(part, r.d or 0)) end
  elseif part == r.e then
    undo(id, r)
    r.d = math.max(part, r.d or 0)
  end
  settle_touched()
  return {'busy'}
end

-- renew LEASE, then ID ASKS FLOOR PART for each. ASKS 1: it waits, and asks whether it still does. PART: the last one that
-- its client knows to be granted, as in take.
local function renew()
  local answers, lease, fields = {}, tonumber(ARGV[2]), {}
  for i = 3, #ARGV, 4 do fields[#fields + 1] = 'r' .. ARGV[i] end
  local packed = {}
  for from = 1, #fields, 1000 do
    local some = call('HMGET', T, unpack(fields, from, math.min(from + 999, #fields)))
    for i, value in ipairs(some) do packed[from + i - 1] = value end
  end
  for i = 3, #ARGV, 4 do
    local id, raise, part, value = ARGV[i], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3]), packed[(i + 1) / 4]
    -- expire() may have removed it just now, or granted it.
    local known = requests[id]
    if known == nil and value then known = unpacked(value) end
    if not known or known.e < part or (ARGV[i + 1] ~= '1' and known.p and known.e == part) then
      answers[#answers + 1] = {'gone'}
    else
      call('ZADD', L, text(now + lease), id)
      if raise > 0 then last = math.max(highest(), raise) end
      if ARGV[i + 1] == '1' then
        answers[#answers + 1] = state(known)
      else
        answers[#answers + 1] = {'held'}
      end
    end
  end
  return answers
end

-- The mode in which a lock has the node at this place: a part that still waits does not count.
local function granted_mode(r, at)
  for i = 1, r.p and #r.b or 0 do
    if r.a[2 * i - 1] == at then return r.b[i] end
  end
  return r.m[at]
end

-- break NODE: breaks each lock that asked for the node (S or X: what a lock has above its targets is IS or IX). Such a request
-- is gone: no renewal finds it, and a message tells its client. What it has stays: the broken nodes (x) until its client
-- acknowledges the break (x is false then), the rest until its client drops it, and all of it for one lease at most. Returns how
-- many, then the ids of those that have not acknowledged. It reads all requests of the root, so it does not do it if there are
-- very many: the server does nothing else meanwhile.
local function break_locks()
  local name, answer = ARGV[2], {0}
  local n = node(name)
  if n[3] + n[4] == 0 then return answer end
  if call('HLEN', T) > MOST_IN_BREAK then return {'too many'} end
  local all = call('HGETALL', T)
  for i = 1, #all, 2 do
    local id = all[i]:sub(1, 1) == 'r' and all[i]:sub(2)
    local r = id and requests[id]
    if id and r == nil then r = unpacked(all[i + 1]) end
    for at, held in ipairs(r and r.n or {}) do
      if held == name and granted_mode(r, at) >= 3 and not (r.x and r.x[name]) then
        requests[id] = r
        if r.x == false then -- another target of a lock that is broken already
          give_back(r, at, 0)
        elseif r.x then
          r.x[name] = true
          answer[#answer + 1] = id:sub(1, -2)
        else
          if r.p then undo(id, r) end
          r.x = {[name] = true}
          requests[id], requests[id .. 'x'] = false, r
          call('ZREM', L, id)
          call('ZADD', L, text(now + r.l), id .. 'x')
          keep_out(id, 0)
          redis.pcall('PUBLISH', r.c, id .. ' ' .. r.q .. ' 0 ' .. T)
          answer[#answer + 1] = id
        end
        answer[1] = answer[1] + 1
        break
      end
    end
  end
  settle_touched()
  return answer
end

-- free 1 ID...: the client of these broken requests does not rely on them any more, so their nodes are free.
-- free 0 ID...: returns how many of these are not free yet.
local function free()
  local left = 0
  for i = 3, #ARGV do
    local r = request(ARGV[i] .. 'x')
    if r and r.x and ARGV[2] == '0' then left = left + 1 end
    if r and r.x and ARGV[2] == '1' then
      for at, name in ipairs(r.n) do
        if r.x[name] then give_back(r, at, 0) end
      end
      r.x = false
    end
  end
  settle_touched()
  return left
end

-- view SESSION...: which of these waits (`WAITING 0`), and for which of these (`WAITING FOR`), one after the other. Only a look
-- for deadlocks asks. It reads all requests of the root, so it does not answer if there are many.
local function view()
  if call('HLEN', T) > MOST_IN_VIEW then return {'too many'} end
  local wanted, holders, waiters, pairs_seen = {}, {}, {}, {}
  for i = 2, #ARGV do wanted[ARGV[i]] = true end
  local function note(list, name, mode, entry)
    list[name] = list[name] or {{}, {}, {}, {}}
    table.insert(list[name][mode], entry)
  end
  local all = call('HGETALL', T)
  for i = 1, #all, 2 do
    local r = all[i]:sub(1, 1) == 'r' and requests[all[i]:sub(2)]
    if r == nil then r = unpacked(all[i + 1]) end
    if r and wanted[r.s] then
      for at, name in ipairs(r.n) do
        if r.m[at] > 0 then note(holders, name, r.m[at], r.s) end
      end
      if r.p then
        local at, mode = stuck(r)
        note(waiters, r.n[at], mode, {s = r.s, m = mode, q = r.w})
      end
    end
  end
  -- Only those in conflict are looked at: thousands that wait for the same mode may be compatible.
  local function note_waits(w, holding, waiting)
    pairs_seen[#pairs_seen + 1] = w.s .. ' 0'
    for m = 1, 4 do
      if not FITS[w.m][m] then
        for _, session in ipairs(holding and holding[m] or {}) do
          if session ~= w.s then pairs_seen[#pairs_seen + 1] = w.s .. ' ' .. session end
        end
        for _, e in ipairs(waiting[m]) do
          if e.q < w.q then pairs_seen[#pairs_seen + 1] = w.s .. ' ' .. e.s end
        end
      end
    end
  end
  for name, waiting in pairs(waiters) do
    for m = 1, 4 do
      for _, w in ipairs(waiting[m]) do
        note_waits(w, holders[name], waiting)
        if #pairs_seen > 10000 then return {'too many'} end
      end
    end
  end
  return pairs_seen
end

local function save()
  local set, gone = {}, {}
  for name, n in pairs(nodes) do
    if used(n) then
      set[#set + 1], set[#set + 2] = 'n' .. name, struct.pack(COUNTS, unpack(n, 1, 9))
    else
      gone[#gone + 1] = 'n' .. name
    end
  end
  for id, r in pairs(requests) do
    if r then
      set[#set + 1], set[#set + 2] = 'r' .. id, cmsgpack.pack(r)
    else
      gone[#gone + 1] = 'r' .. id
    end
  end
  if last then set[#set + 1], set[#set + 2] = 'f', text(last) end
  if sequence then set[#set + 1], set[#set + 2] = 's', text(sequence) end
  lives_until = lives_until or tonumber(call('HGET', T, 'x'))
  local is_new = not lives_until and #set > 0
  local lives_on = is_new or (lives_until and lives_until < now + LONGEST_LEASE)
  if lives_on then set[#set + 1], set[#set + 2] = 'x', text(now + KEEP) end
  if is_new then
    call('ZADD', L, NEVER, '-')
    call('ZADD', Q, 0, '-')
  end
  if lives_until or is_new then set[#set + 1], set[#set + 2] = 'e', call('ZRANGE', L, 0, 0, 'WITHSCORES')[2] or NEVER end
  for i = 1, #set, 1000 do call('HSET', T, unpack(set, i, math.min(i + 999, #set))) end
  for i = 1, #gone, 1000 do call('HDEL', T, unpack(gone, i, math.min(i + 999, #gone))) end
  if lives_on then
    for _, key in ipairs(KEYS) do call('PEXPIRE', key, KEEP) end
  end
  -- f, x and e are left, and perhaps s: nobody has anything here.
  local left = call('HLEN', T)
  if left == 3 or (left == 4 and call('HGET', T, 's')) then
    local fence = call('HGET', T, 'f')
    if not fence then return end
    call('HSET', T, 'a', string.format('%013.0f%016.0f', lives_on and now + KEEP or lives_until, fence))
    call('HDEL', T, 'f', 'x', 'e')
  end
end

-- What a failed step has changed outside of T is not undone, so T must tell of it, too.
local well, answer = pcall(function()
  expand()
  expire()
  return ({take = take, drop = drop, renew = renew, view = view, ['break'] = break_locks, free = free})[ARGV[1]]()
end)
save()
return well and answer or redis.error_reply('ERR ' .. tostring(answer))
