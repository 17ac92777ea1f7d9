-- A room whose only holder has the key for itself while others wait: what a contended mutex nearly always is, and where a
-- hand-over has to be quick. Follows room.lua for this one case in less than half of its time. Whatever is out of the ordinary
-- (somebody has expired, the room has to be kept longer, the key holds something else) is left to room.lua, before
-- anything was changed.

-- The summary of such a room, how many have arrived, until when it is kept, the places of the holder, of the head of the
-- queue and of the one behind, and when the holder expires.
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

-- Whether who waits at this place is still remembered. Nobody at all is as good.
local function isRemembered(key, place)
  if not place then return true end
  local till = string.match(entryOf(key, string.sub(place, 15)) or '', '^w %d+ %d+ (%d+) ', #place - 11)
  return till ~= nil and tonumber(till) > now
end
