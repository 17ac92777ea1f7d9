-- A crowd behind a single holder, which has the key for itself. A contended mutex is nearly always in this state, and
-- its hand-over has to be quick. For this one case crowd.lua does the same as room.lua in less than half of its time.
-- It leaves every exception to room.lua, before it has changed anything. Exceptions are a ticket that has expired, a
-- room that has to be kept longer, and a key that holds something else.

-- Reads the room of a crowd:
-- - its summary, how many waiters have arrived, until when the room is kept, and when the holder expires
-- - the places of the holder, of the head of the queue and of the waiter behind the head
local function crowd(key)
  local top = redis.pcall('ZRANGE', key, '0', '3')
  local arrivals, kept = string.match(top[1] or '', '^1 (%d+) 1 1 1 1 0 (%d+)$')
  local place, head, second = top[2] or '', top[3], top[4]
  local till = tonumber(string.sub(place, 2, 14))
  if not kept or not till or till <= now then return end
  if head and string.sub(head, 1, 1) ~= 'q' then head = nil end
  if not head or second and string.sub(second, 1, 1) ~= 'q' then second = nil end
  return { summary = top[1], arrivals = arrivals, kept = tonumber(kept), place = place, head = head, second = second, till = till }
end

local function entryOf(key, id)
  local from = 't' .. id .. '\0'
  return redis.call('ZRANGEBYLEX', key, '[' .. from, '(' .. from .. '\255', 'LIMIT', '0', '1')[1]
end

-- Reads a waiter: its entry, until when it is remembered, and when and how it was heard of (see `heard` in room.lua).
-- For a waiter of a group also the entry of the group, with and without this waiter.
local function waiterOf(key, id)
  local entry = entryOf(key, id)
  local till, heard, listens, inbox =
    string.match(entry or '', '^w %d+ %d+ (%d+) (%d%d%d%d%d%d%d%d%d%d%d%d%d)(%d) %d+ %d+ %d+ %d+ %d+ (%S+) ', #id + 3)
  if not inbox then return end
  if not string.find(inbox, '/', 1, true) then return { entry = entry, till = tonumber(till), heard = heard, listens = listens } end
  local together = redis.call('ZRANGEBYLEX', key, '[r' .. inbox .. '\0', '(r' .. inbox .. '\1', 'LIMIT', '0', '1')[1]
  local last, at, digit, count = string.match(together or '', '^(%d+) (%d%d%d%d%d%d%d%d%d%d%d%d%d)(%d) (%d+) %d$', #inbox + 3)
  if not last then return end
  return {
    entry = entry, till = tonumber(last), heard = at, listens = listens == '3' and '3' or digit,
    group = together, without = string.format('r%s\0%s %s%s %.0f 1', inbox, last, at, digit, count - 1), isLast = count == '1',
  }
end

-- Whether the waiter at this place is still remembered. True if there is no waiter.
local function isRemembered(key, place)
  if not place then return true end
  local waiter = waiterOf(key, string.sub(place, 15))
  return waiter ~= nil and waiter.till > now
end
