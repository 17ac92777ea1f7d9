-- Takes a vote back: for a ticket that does not have a quorum and lets another one go first, or that stops waiting. Unlike a
-- release it knows no minimum hold, since nothing was held.
--
-- KEYS    1 the last fence · 2 the room
-- ARGV    1 `q` to wait again, behind those who wait, or `r` to leave · 2 patienceMs · 3 the id
--         4 when the vote that is meant ends: this may arrive late, after another request has had the vote confirmed
-- Result  q: it waits · h: it keeps its vote: nobody else waits here, or it is another one · u: it has left, or was not there
--@ start
--@ last
--@ fence
--@ wake
--@ tried
--@ room

local id, waits = ARGV[3], ARGV[1] == 'q'

local function yield()
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

local answer = attempt(KEYS[2], yield)
close()
keepFence()
return answer
