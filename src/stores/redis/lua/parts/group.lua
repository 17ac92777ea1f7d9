-- Waiters of one process for one key that are remembered together; see renew.lua. One entry says until when, and a mark that a waiter
-- has left the group. Inside room.lua, which describes how they are kept.

-- The group of this name, false if there is none.
local function group(name)
  if room.groups[name] == nil then
    local found = redis.call('ZRANGEBYLEX', room.key, '[r' .. name .. '\0', '(r' .. name .. '\2')
    local till, hold = string.match(found[1] or '', '^(%d+) (%d+)$', #name + 3)
    room.groups[name] = till and { entry = found[1], till = tonumber(till), hold = hold, changed = found[2] ~= nil } or false
  end
  return room.groups[name]
end

-- The waiter was last heard of with its group. If the group is gone, so is the process.
local function hearWithGroup(waiter)
  waiter.group = string.match(waiter.facts, '^%d+ %d+ %d+ %d+ %d+ ([^ /]+/%S+)')
  if not waiter.group then return end
  local known = group(waiter.group)
  waiter.till = known and known.till or 0
  if known then waiter.hold = string.sub(known.hold, 1, 13) .. (string.match(waiter.hold, '3$') or string.sub(known.hold, 14)) end
end

local function leaveGroup(waiter)
  local known = group(waiter.group)
  if known and not known.changed then
    known.changed = true
    redis.call('ZADD', room.key, '0', 'r' .. waiter.group .. '\1')
  end
  waiter.group, waiter.facts = nil, string.gsub(waiter.facts, '/%S+', '', 1)
end

-- Forgets a group that nobody has heard of for long, if that is the next one by name.
local function dropOldGroup(name)
  local others = redis.call('ZRANGEBYLEX', room.key, '(r' .. name .. '\2', '(s', 'LIMIT', '0', '1')
  local entry = others[1] or redis.call('ZRANGEBYLEX', room.key, '[r', '(s', 'LIMIT', '0', '1')[1] or ''
  local other, till = string.match(entry, '^r([^%c]+)%c(%d*)')
  if other and (till == '' or till + TOMBSTONE < now) then redis.call('ZREM', room.key, entry, 'r' .. other .. '\1') end
end

-- The server hears of a group, or of its first waiter. Behind a ZREM, as every write.
local function hear(name, asked)
  local known = group(name)
  if known then
    redis.call('ZREM', room.key, known.entry)
  else
    known = { changed = false }
    room.groups[name] = known
    dropOldGroup(name)
  end
  known.till, known.hold = now + asked.patience, now .. asked.listens
  known.entry = 'r' .. name .. '\0' .. known.till .. ' ' .. known.hold
  redis.call('ZADD', room.key, '0', known.entry)
  keep(known.till)
end
