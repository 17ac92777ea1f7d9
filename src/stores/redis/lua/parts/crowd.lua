-- A crowd behind a single holder, which has the key for itself. A contended mutex is nearly always in this state, and
-- its hand-over has to be quick. For this one case the scripts do the same as room.lua in less than half of its time.
-- They leave every exception to room.lua, before they have changed anything. Exceptions are a ticket that has expired, a
-- room that has to be kept longer, and a key that holds something else.

-- Until when a group is remembered, when and how it was heard of, its number of waiters, and its entry. 0 if there is no
-- such group.
local function groupOf(key, name)
  local entry = redis.call('ZRANGEBYLEX', key, '[r' .. name .. '\0', '(r' .. name .. '\1', 'LIMIT', '0', '1')[1]
  local till, heard, listens, count = string.match(entry or '', '^(%d+) (%d%d%d%d%d%d%d%d%d%d%d%d%d)(%d) (%d+) %d$', #name + 3)
  return tonumber(till or 0), tonumber(heard), listens, count, entry
end

-- Whether a member of the room is no waiter, or a waiter that is still remembered. Reads by places, because patterns take
-- longer: behind the id come `w `, then numbers of 13, 16 and 14 digits.
local function isRemembered(key, member)
  if not member or string.sub(member, 1, 1) ~= 'q' then return true end
  local at = string.find(member, '\0', 15, true)
  if not at then return false end
  local till = tonumber(string.sub(member, at + 3, at + 15))
  if string.find(member, '/', at, true) then
    local group = string.match(member, '^%d+ %d+ %d+ %d+ %d+ ([^ /]+/%S+)', at + 49)
    if group then till = groupOf(key, group) end
  end
  return till ~= nil and till > now
end
