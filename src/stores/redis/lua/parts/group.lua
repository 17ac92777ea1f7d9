-- Groups: waiters of one process for one key that are remembered by one entry; see renew.lua. Inside room.lua, which
-- describes the entry.

-- The group of this name, or false if there is none.
local function group(name)
  if room.groups[name] == nil then
    local entry = redis.call('ZRANGEBYLEX', room.key, '[r' .. name .. '\0', '(r' .. name .. '\1', 'LIMIT', '0', '1')[1]
    local till, hold, count, changed = string.match(entry or '', '^(%d+) (%d+) (%d+) (%d)$', #name + 3)
    room.groups[name] = till and { name = name, entry = entry, till = tonumber(till), hold = hold, count = tonumber(count), changed = changed } or false
  end
  return room.groups[name]
end

-- Groups that their last waiter has left in this call.
local emptied = {}

-- Call it only after something was removed: a full server refuses a script that begins by adding.
local function writeGroup(known)
  if known.entry then redis.call('ZREM', room.key, known.entry) end
  known.entry, known.stale = nil, nil
  if known.count == 0 then
    room.groups[known.name], emptied[known.name] = false, true
    return
  end
  known.entry = 'r' .. known.name .. '\0' .. known.till .. ' ' .. known.hold .. ' ' .. known.count .. ' ' .. known.changed
  redis.call('ZADD', room.key, '0', known.entry)
end

-- Reads from the group when its waiter was heard of, and until when it is remembered.
local function hearWithGroup(waiter)
  waiter.group = string.match(waiter.facts, '^%d+ %d+ %d+ %d+ %d+ ([^ /]+/%S+)')
  if not waiter.group then return end
  local known = group(waiter.group)
  waiter.till = known and known.till or 0
  if known then waiter.hold = string.sub(known.hold, 1, 13) .. (string.match(waiter.hold, '3$') or string.sub(known.hold, 14)) end
end

-- Writes the entry when the first waiter leaves, and again when the room is closed. So the group counts as changed even
-- if the script fails in between.
local function leaveGroup(waiter)
  local known = group(waiter.group)
  if known then
    local first = known.changed == '0' or known.count == 1
    known.count, known.changed, known.stale = known.count - 1, '1', true
    if first then writeGroup(known) end
  end
  waiter.group, waiter.facts = nil, string.gsub(waiter.facts, '/%S+', '', 1)
end

local function hear(known, asked)
  known.till, known.hold, known.stale = now + asked.patience, now .. asked.listens, true
  keep(known.till)
end

-- The process believes that all waiters that have ever joined are in the group. So a group counts as changed once one of them has
-- left, also if the last one has left before the next one joins.
local function joinGroup(waiter, name, asked)
  local known = group(name) or { name = name, count = 0, changed = asked.begins and not emptied[name] and '0' or '1' }
  room.groups[name] = known
  known.count = known.count + 1
  hear(known, asked)
  if known.count == 1 then writeGroup(known) end
  waiter.group, waiter.facts = name, string.gsub(waiter.facts, '^(%d+ %d+ %d+ %d+ %d+) %S+', '%1 ' .. name)
end
