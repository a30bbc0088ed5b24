"""The Lua scripts of action memory. Each is one atomic step on the keys of one session.

Keys of a session, all in one hash slot: ``documents`` (document key → record), ``domains`` (``r:`` order of the
first time, ``a:`` answered, ``e:`` empty answers), ``questions`` (list), ``requests`` (token → expiry) and one
``request`` hash for each token (``owner``, ``until``, ``taken``, ``answer``). A record is JSON: t title, d domain, v version, p ordinals shown ("*": the whole
text), f times refetched, n order.
"""

from __future__ import annotations

# Every key of a session gets the same expiry in the same step, or parts of it would be forgotten before others.
_TOUCH = """
local function touch(ttl)
  for i = 1, 4 do redis.call('PEXPIRE', KEYS[i], ttl) end
end
local function now()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
"""

# KEYS documents domains questions requests request; ARGV ttl token owner lease replay
BEGIN = (
    _TOUCH
    + """
local ttl, token, owner, lease, replay = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
if token ~= '' then
  local answer = redis.call('HGET', KEYS[5], 'answer')
  if answer then
    touch(ttl)
    return {'answered', answer}
  end
  local at = now()
  local until_ = tonumber(redis.call('HGET', KEYS[5], 'until') or '0')
  if until_ > at then return {'busy'} end
  redis.call('HSET', KEYS[5], 'owner', owner, 'until', at + lease)
  redis.call('PEXPIRE', KEYS[5], replay)
  redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', at)
  redis.call('ZADD', KEYS[4], at + replay, token)
end
touch(ttl)
local retried = redis.call('HEXISTS', KEYS[5], 'taken')
return {'owner', redis.call('LRANGE', KEYS[3], 0, -1), redis.call('HGETALL', KEYS[2]), retried}
"""
)

# KEYS as above; ARGV selection (JSON)
MARK = (
    _TOUCH
    + """
local s = cjson.decode(ARGV[1])
local out = {handed = {}, withheld = {}, empties = 0}
local taken = {documents = {}}
if s.token ~= '' then
  local raw = redis.call('HGET', KEYS[5], 'taken')
  if raw then taken = cjson.decode(raw) end
end
local refetch = {}
for _, key in ipairs(s.refetch) do refetch[key] = true end

local function numbers(list)
  local set = {}
  for n in string.gmatch(list, '%d+') do set[tonumber(n)] = true end
  return set
end
local function joined(set)
  local list = {}
  for n in pairs(set) do list[#list + 1] = n end
  table.sort(list)
  return table.concat(list, ',', math.max(1, #list - s.passages + 1))
end
local function merged(first, second)
  if first == '*' or second == '*' then return '*' end
  local set = numbers(first)
  for n in pairs(numbers(second)) do set[n] = true end
  return joined(set)
end
local function record(key)
  local raw = redis.call('HGET', KEYS[1], key)
  return raw and cjson.decode(raw) or nil
end

-- What of an offer this session has not been shown, or nil. Neighbours alone are no reason to show it again.
local function unseen(o, seen)
  if not seen or o.v > seen.v then return merged(o.p, o.c) end
  if o.v < seen.v or seen.p == '*' then return nil end
  if o.p == '*' then return '*' end
  local shown, left = numbers(seen.p), {}
  for n in pairs(numbers(o.p)) do if not shown[n] then left[n] = true end end
  if next(left) == nil then return nil end
  for n in pairs(numbers(o.c)) do if not shown[n] then left[n] = true end end
  return joined(left)
end

local function may_add(field)
  return redis.call('HEXISTS', KEYS[2], field) == 1 or redis.call('HLEN', KEYS[2]) < s.domains * 3
end
local function order() return redis.call('HINCRBY', KEYS[2], '#', 1) end

local function mark(o, seen, passages, again)
  local r = {t = o.t, d = o.d, v = o.v, p = passages, f = 0}
  if seen then
    r.n, r.f = seen.n, seen.f + (again and 1 or 0)
    if seen.v == o.v then r.p = merged(seen.p, passages) end
  else
    r.n = order()
  end
  redis.call('HSET', KEYS[1], o.k, cjson.encode(r))
  if may_add('r:' .. o.d) then redis.call('HSETNX', KEYS[2], 'r:' .. o.d, order()) end
  taken.documents[o.k] = {v = o.v, p = passages, f = again}
end

local function forget_oldest()
  local rows, all = {}, redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do rows[#rows + 1] = {cjson.decode(all[i + 1]).n, all[i]} end
  table.sort(rows, function(a, b) return a[1] < b[1] end)
  -- A tenth more than needed: reading everything for each new document would cost more than it saves.
  for i = 1, #rows - s.documents + math.floor(s.documents / 10) do redis.call('HDEL', KEYS[1], rows[i][2]) end
end

-- The same request again (its answer was lost): hands out what it took the first time, and marks nothing.
local function take_again()
  local found = false
  for index, o in ipairs(s.ranked) do
    local mine = taken.documents[o.k]
    if mine and mine.v == o.v then
      out.handed[#out.handed + 1] = {index, mine.p, mine.f}
      found = true
    end
  end
  return found
end

local function count_empty()
  local field = 'e:' .. s.domain
  if taken.empties == nil then
    if s.complete and may_add(field) then redis.call('HINCRBY', KEYS[2], field, 1) end
    taken.empties = tonumber(redis.call('HGET', KEYS[2], field) or '0')
  end
  out.empties = taken.empties
end

local function remember_question(best)
  redis.call('RPUSH', KEYS[3], s.question)
  redis.call('LTRIM', KEYS[3], -s.questions, -1)
  if s.answered and may_add('a:' .. best.d) then redis.call('HSET', KEYS[2], 'a:' .. best.d, 1) end
end

local function choose(best)
  local stopped = s.hard and redis.call('HEXISTS', KEYS[2], 'a:' .. best.d) == 1
  local fresh = not stopped and unseen(best, record(best.k)) ~= nil
  for index, o in ipairs(s.ranked) do
    local seen = record(o.k)
    local again = seen ~= nil and refetch[o.k] == true
    local passages = unseen(o, seen)
    if again then passages = merged(o.p, o.c) end
    if stopped or passages == nil then
      if seen then out.withheld[#out.withheld + 1] = {index, stopped and 'domain_retrieved' or 'doc_retrieved'} end
    elseif #out.handed < s.limit and (fresh or refetch[o.k]) then
      mark(o, seen, passages, again)
      out.handed[#out.handed + 1] = {index, passages, again}
    end
  end
  if #out.handed == 0 then out.reason = stopped and 'domain_retrieved' or 'doc_retrieved' end
  if fresh then remember_question(best) end
  if redis.call('HLEN', KEYS[1]) > s.documents then forget_oldest() end
end

if #s.ranked == 0 then
  count_empty()
elseif not take_again() then
  choose(s.ranked[1])
end
if s.token ~= '' then
  redis.call('HSET', KEYS[5], 'taken', cjson.encode(taken))
  redis.call('PEXPIRE', KEYS[5], s.replay)
  redis.call('ZADD', KEYS[4], now() + s.replay, s.token)
end
touch(s.ttl)
out.domains = redis.call('HGETALL', KEYS[2])
return cjson.encode(out)
"""
)

# KEYS as above; ARGV owner answer replay. An answer of a request that was taken over or cleared is not kept.
FINISH = """
if redis.call('HGET', KEYS[5], 'owner') ~= ARGV[1] then return 0 end
redis.call('HDEL', KEYS[5], 'owner', 'until')
if ARGV[2] ~= '' then redis.call('HSET', KEYS[5], 'answer', ARGV[2]) end
redis.call('PEXPIRE', KEYS[5], ARGV[3])
return 1
"""

# KEYS as above, request being the prefix of all request keys (same slot).
CLEAR = """
for _, token in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do redis.call('DEL', KEYS[5] .. token) end
return redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
"""
