-- Removes one ticket of a room by force, or all tickets, wakes them, and admits the next ones.
--
-- KEYS    1 the last fence · 2 the room
-- ARGV    1 the id, or nothing for all · 2 the reason, as JSON, so that it is one line
--         3 `w` to leave tickets that hold or were offered the key, or nothing
-- Result  a list: `>` if more tickets are to be removed by a further call, `+` if more can be admitted, else an empty text; then the ids
--         that were removed, in the order of the room
--         or ?<layout> alone if the key holds a room of another layout, or something else
--@ start
--@ last
--@ fence
--@ wake
--@ tried
--@ room
--@ tombstones

-- So many waiters keep the server busy for about five milliseconds.
local MOST = '200'

-- The entries that this call removes, in the order of the room, and whether further calls have to remove more. A large queue goes in
-- parts, from its end, so that nobody gets the key in between. The last part has the holders, too.
local function entriesToRemove()
  if ARGV[1] ~= '' then
    local ticket = find(ARGV[1])
    return { ticket and ticket.entry or nil }
  end
  local last = redis.call('ZRANGE', room.key, '(r', '[q', 'BYLEX', 'REV', 'LIMIT', '0', MOST)
  if #last < tonumber(MOST) then return redis.call('ZRANGEBYLEX', room.key, '[e', '(r') end
  local entries = {}
  for at = #last, 1, -1 do entries[#entries + 1] = last[at] end
  return entries, true
end

local function remove()
  settle()
  local removed = { '' }
  local entries, isPart = entriesToRemove()
  for _, entry in ipairs(entries) do
    local ticket = ticketOf(entry)
    local id = ticket.id
    if ARGV[3] == '' or ticket.state == 'w' then
      if ticket.state == 'w' then
        erase(ticket)
      else
        drop(ticket)
        delay(ticket, now)
      end
      bury(id, 'e' .. ARGV[2])
      removed[#removed + 1] = id
      -- This very call may have sent the ticket a hint. Then the ticket asks again anyway, and needs no second message.
      -- A lease by message does need one.
      if not ticket.told or ticket.granted then room.woken[#room.woken + 1] = ticket end
    end
  end
  admit()
  close()
  removed[1] = isPart and '>' or unsettled[room.key] and '+' or ''
  return removed
end

local answer = attempt(KEYS[2], remove)
keepFence()
return answer
