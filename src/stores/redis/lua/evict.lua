-- Removes one ticket of a room by force, or all tickets, wakes them, and admits the next ones.
--
-- KEYS    1 the last fence · 2 the room
-- ARGV    1 the id, or nothing for all · 2 the reason, as JSON, so that it is one line
--         3 `w` to leave tickets that hold or were offered the key, or nothing
-- Result  a list: `+` if more can be admitted, else an empty text; then the ids that were removed
--         or ?<layout> alone if the key holds a room of another layout, or something else
--@ start
--@ last
--@ fence
--@ wake
--@ tried
--@ room
--@ tombstones

local function remove()
  settle()
  local removed = { '' }
  for _, entry in ipairs(redis.call('ZRANGEBYLEX', room.key, '[e', '(r')) do
    local ticket = ticketOf(entry)
    local id = ticket.id
    if (ARGV[1] == '' or ARGV[1] == id) and (ARGV[3] == '' or ticket.state == 'w') then
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
  if unsettled[room.key] then removed[1] = '+' end
  return removed
end

local answer = attempt(KEYS[2], remove)
keepFence()
return answer
