-- The state of a ticket that asks, and the answer to it. Behind room.lua.

-- How long until the server's clock alone may let a waiter in.
local function untilChange()
  local entry = first('e')
  local change = math.min(entry and tonumber(string.sub(entry, 2, 14)) or math.huge, room.closed > now and room.closed or math.huge)
  return change == math.huge and 1 or math.max(1, change - now)
end

-- Until when the room stays taken by a ticket that is confirmed now, even after its release. 0: no longer than the
-- ticket holds.
local function minimumHold(asked) return asked.minHold > 0 and stamp(now + asked.minHold) or '0' end

-- After how long a waiter asks again at the latest. Every waiter watches the next expiry, because all waiters in front
-- of it may be dead. Only the head of the queue may ask as soon as that; the others wait for at least a sixth of their
-- acceptance term.
local function waiting(asked, isHead)
  local least = isHead and 0 or asked.accept / 6
  return 'q' .. math.ceil(math.min(asked.patience / 3, asked.accept * 2 / 3, math.max(least, untilChange()))) .. ' ' .. now
end

-- The answer to a ticket after the room was settled. `asked` are the terms of this request.
local function status(ticket, asked)
  if ticket.state == 'l' then return 'g' end
  if ticket.state == 'w' then return waiting(asked, first('q') == ticket.entry) end
  erase(ticket)
  if ticket.state == 'o' then ticket.state, ticket.hold = 'h', minimumHold(asked) end
  -- The lease never ends sooner than promised before: a request with a shorter ttl may arrive late.
  ticket.till = math.max(ticket.till, now + asked.ttl, ticket.hold)
  moveTo(asked.inbox, ticket)
  write(ticket)
  return 'h' .. ticket.number
end

-- Remembers the waiter before anything is dropped, so a waiter that comes back late keeps its place if it still has
-- one.
local function remember(id, asked)
  local ticket = find(id)
  if ticket and ticket.state == 'w' then
    erase(ticket)
    local listens = isMarked(ticket, '[23]') and '3' or asked.listens
    ticket.till, ticket.hold = now + asked.patience, now .. listens
    moveTo(asked.inbox, ticket)
    if asked.joins then joinGroup(ticket, asked.joins, asked) end
    write(ticket)
  end
end
