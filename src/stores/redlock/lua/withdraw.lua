-- Takes the vote of a ticket back, because the ticket has no quorum: it lets another ticket go first, or leaves. Unlike a release
-- this ignores the minimum hold, as a ticket without a quorum has held nothing.
--
-- KEYS    1 the last fence · 2 the room
-- ARGV    1 `q` to wait again, at the end of the queue, or `r` to leave the room · 2 patienceMs · 3 the id
--         4 with `q`: when the vote ends. If it ends at another time by now, a later request has renewed it, and it stays
-- Result  q: the ticket waits · h: it keeps its vote, because nobody else waits here or the vote was renewed
--         u: it has left, or was not there
--@ start
--@ last
--@ fence
--@ wake
--@ tried
--@ room

local id, waits = ARGV[3], ARGV[1] == 'q'

local function withdraw()
  settle(id)
  local ticket = find(id)
  if not ticket or ticket.state == 'l' then return 'u' end
  if ticket.state == 'w' then
    if waits then return 'q' end
    erase(ticket)
  else
    if waits and (stamp(ticket.till) ~= ARGV[4] or not first('q')) then return 'h' end
    drop(ticket)
    if waits then
      room.arrivals = room.arrivals + 1
      ticket.state, ticket.number, ticket.since = 'w', stamp(room.arrivals), usText
      ticket.till, ticket.hold = now + tonumber(ARGV[2]), now .. '0'
      write(ticket)
    end
  end
  admit(id)
  return waits and 'q' or 'u'
end

local answer = attempt(KEYS[2], withdraw)
close()
keepFence()
return answer
