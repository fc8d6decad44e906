#!lua flags=allow-oom
-- What processes tell each other about their locks and waits (docs/remote.md). KEYS[1] = B is a sorted set: the Lockers
-- that live, by when their notices end, in ms. B:<locker> is a hash: id -> notice, and `v`, the time of the last change in
-- microseconds. (A count would begin anew when the hash is new. Then a reader would take it for an old one.) KEYS[2] is the
-- one that is changed: while a cluster moves it, the script is refused, and makes no second one.
local B, op, locker = KEYS[1], ARGV[1], ARGV[2]
local call = redis.call
local time = call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
local function text(number) return string.format('%.0f', number) end
local function changed()
  local last = tonumber(call('HGET', B .. ':' .. locker, 'v')) or 0
  call('HSET', B .. ':' .. locker, 'v', text(math.max(us, last + 1)))
end
local function live()
  call('ZADD', B, text(now + ARGV[3]), locker)
  call('PEXPIRE', B, ARGV[3])
  call('PEXPIRE', B .. ':' .. locker, ARGV[3])
end

-- publish LOCKER ALIVE_MS, then ID AGE_US and 11 columns for each
if op == 'publish' then
  for i = 4, #ARGV, 13 do
    local row = {text(us - ARGV[i + 1])}
    for column = 1, 11 do row[column + 1] = ARGV[i + 1 + column] end
    call('HSET', B .. ':' .. locker, ARGV[i], cmsgpack.pack(row))
  end
  changed()
  live()
-- remove LOCKER ALIVE_MS ID...
elseif op == 'remove' then
  for i = 4, #ARGV do call('HDEL', B .. ':' .. locker, ARGV[i]) end
  changed()
  live()
-- alive LOCKER ALIVE_MS: how many there are
elseif op == 'alive' then
  live()
  return math.max(0, call('HLEN', B .. ':' .. locker) - 1)
-- read, then LOCKER VERSION for each that is known: the time; then for each Locker its name, its version, and its notices
-- if that version is not the known one
elseif op == 'read' then
  local known, answer = {}, {text(us)}
  for i = 2, #ARGV, 2 do known[ARGV[i]] = ARGV[i + 1] end
  call('ZREMRANGEBYSCORE', B, '-inf', now)
  for _, name in ipairs(call('ZRANGE', B, 0, -1)) do
    local version = call('HGET', B .. ':' .. name, 'v')
    if version then
      local rows = {}
      if known[name] ~= version then
        local all = call('HGETALL', B .. ':' .. name)
        for i = 1, #all, 2 do
          if all[i] ~= 'v' then rows[#rows + 1] = cmsgpack.unpack(all[i + 1]) end
        end
      end
      answer[#answer + 1] = {name, version, rows}
    end
  end
  return answer
end
return redis.status_reply('OK')
