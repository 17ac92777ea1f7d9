-- Tickets, as the entries of a room have them. Inside room.lua, which describes the entries.

-- A ticket by its entry.
local function parse(entry)
  local section, place, id, state, other, since, hold, facts =
    string.match(entry, '^(%a)(%d%d%d%d%d%d%d%d%d%d%d%d%d)([^%z]+)%z(%a) (%d+) (%d+) (%d+) (.*)$')
  local waits = section == 'q'
  local ticket = {
    id = id, entry = entry, section = section, index = 't' .. id .. '\0' .. section .. place, state = state,
    number = waits and place or other, since = since, till = tonumber(waits and other or place), hold = hold, facts = facts,
  }
  if waits then hearWithGroup(ticket) end
  room.tickets[id] = ticket
  return ticket
end

-- The ticket of this entry, as the script knows it by now.
local function ticketOf(entry)
  local id = string.match(entry, '^[^%z]+', 15)
  return room.tickets[id] or parse(entry)
end

local function find(id)
  if room.tickets[id] == nil then
    local index = member('t' .. id .. '\0')
    if index and string.sub(index, #id + 3, #id + 3) == 'x' then index = false end
    local entry = index and member(string.sub(index, #id + 3) .. id .. '\0')
    local only = not index and room.holders == 1 and first('e')
    if only and string.sub(only, 15, #id + 15) == id .. '\0' then entry = only end
    room.tickets[id] = entry and parse(entry) or false
  end
  return room.tickets[id]
end

-- Reads the units and the limit of a ticket, and the terms on which it asked.
local function share(ticket)
  if not ticket.units then
    local units, limit, accept, delay, grant, inbox = string.match(ticket.facts, '^(%d+) (%d+) (%d+) (%d+) (%d+) ([^ /]+)')
    ticket.units, ticket.limit, ticket.accept = tonumber(units), tonumber(limit), tonumber(accept)
    ticket.delay, ticket.grant, ticket.inbox = tonumber(delay), tonumber(grant), inbox
  end
  return ticket
end

-- A wake goes to the process that asked about the ticket last.
local function moveTo(inbox, ticket)
  if string.find(ticket.facts, inbox, 1, true) then return end
  ticket.facts, ticket.units = string.gsub(ticket.facts, '^(%d+ %d+ %d+ %d+ %d+) %S+', '%1 ' .. inbox), nil
end

local function heardAt(waiter) return math.floor(waiter.hold / 10) end
local function isMarked(waiter, digit) return #waiter.hold == 14 and string.find(waiter.hold, digit, 14) ~= nil end

-- The holder of a room that is kept as one string. Raises an error if the text is no lone holder. Raises one, too, if `till` is below 0:
-- the key has no expiry, so nobody knows when the lease ends.
local function parseLone(text, till)
  local id, fence, since, facts = string.match(text, '^2 t([^%z]+)%z(%d+) (%d+) (%d+ %d+ %d+ 0 %d+ [^ /]+ .*)$')
  return parse('e' .. stamp(till) .. id .. '\0h ' .. fence .. ' ' .. since .. ' 0 ' .. facts)
end
