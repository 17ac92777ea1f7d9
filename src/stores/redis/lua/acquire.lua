-- Asks for keys, or asks again: one room for each ticket, all tickets on the same terms.
--
-- KEYS    1 the last fence · 2… the rooms
-- ARGV    1 ttlMs · 2 minHoldMs · 3 patienceMs · 4 keepMs: how long a room of one such holder has to be kept
--         5 facts: `units limit acceptMs lockDelayMs inbox owner` · 6… the ids
-- Result  for each ticket h<fence> · q<ahead> <askAgainMs> · b<retryMs> · g · e<reason> · ?<layout>
--@ start
--@ fence
local ttl, minHold, patience, facts = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[5]
local hold = minHold > 0 and now + minHold or 0
local state = ' ' .. usText .. ' ' .. (now + (ttl > minHold and ttl or minHold)) .. ' ' .. hold .. ' ' .. facts
local answers, general = {}, {}

-- A free room is nearly every request, and needs one small key. The rest is defined only when it is needed.
for at = 2, #KEYS do
  if redis.pcall('GET', KEYS[at]) then
    general[#general + 1] = at
  else
    local fence = nextFence()
    redis.call('SET', KEYS[at], '1 t' .. ARGV[at + 4] .. '\0h ' .. fence .. state, 'PX', ARGV[4])
    answers[at - 1] = 'h' .. fence
  end
end

if #general > 0 then
--@ room

  local function queued(ticket, asked) return 'q' .. rank(ticket.place) .. ' ' .. string.sub(status(ticket, asked), 2) end

  local function ask(id, asked)
    remember(id, asked)
    settle(id)
    local ticket = find(id)
    if ticket and ticket.state == 'w' then return queued(ticket, asked) end
    local known = ticket and status(ticket, asked) or tombstone(id)
    if known then return known end
    ticket = {
      id = id, units = asked.units, limit = asked.limit, accept = asked.accept, delay = asked.delay, inbox = asked.inbox,
      owner = asked.owner, since = usText,
    }
    if not first('a') and admits(ticket) then
      ticket.state, ticket.number, ticket.hold, ticket.till = 'h', nextFence(), hold, now + math.max(ttl, minHold)
      enter(ticket)
      return 'h' .. ticket.number
    end
    if patience == 0 then return 'b' .. untilChange() end
    room.arrivals = room.arrivals + 1
    ticket.state, ticket.number, ticket.till, ticket.hold = 'w', room.arrivals, now + patience, 0
    write(ticket)
    return queued(ticket, asked)
  end

  local units, limit, accept, delay, inbox, owner = string.match(facts, '^(%d+) (%d+) (%d+) (%d+) (%S+) (.*)$')
  local asked = {
    ttl = ttl, minHold = minHold, patience = patience, accept = tonumber(accept), inbox = inbox,
    units = tonumber(units), limit = tonumber(limit), delay = tonumber(delay), owner = owner,
  }
  for _, at in ipairs(general) do
    answers[at - 1] = open(KEYS[at])
    if not answers[at - 1] then
      answers[at - 1] = ask(ARGV[at + 4], asked)
      close()
    end
  end
end
keepFence()
return answers
