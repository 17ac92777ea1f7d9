-- The general room, for all verbs. One Redis key keeps the whole room, so the room is there or gone as a whole. That key
-- is a sorted set whose members all have the score 0, which makes it a map in the order of its texts:
--
--   2 <holders> <units> <limit> <smallest> <closedUntil> <keptUntil> <arrivals>     the summary: layout 2, and the sum of the holders
--   e<expiresAt><id>\0<state> <fence> <sinceUs> <holdUntil> <facts>          the holders, in order of expiry
--   q<arrival><id>\0w <rememberedUntil> <sinceUs> <heard> <facts>            the waiters, in order of arrival
--   t<id>\0<e or q and its number>     where the entry of a ticket begins. A single holder has none: its entry is the second member
--   r<group>\0<rememberedUntil> <heard> <waiters> <1 if one has left, else 0>     a group: waiters that are remembered together
--   t<id>\0x<until> <g or e><reason>     a tombstone, g: cancelled, e: evicted
--   y<until><id>        the tombstones, in order of their end
--
-- heard: when the waiter asked last, in ms (13 digits), then one digit:
--   0  its process did not listen to its inbox then
--   1  its process listened
--   2  the waiter is unreached: its process listened, but a message to it reached nobody. Other waiters pass it until it asks again
--   3  the waiter was passed, and has asked since, so its process lives: it is not passed again
--   4  its process listened, on a cluster, where no server knows whether a message reached nobody
-- facts: `units limit acceptMs lockDelayMs grantMs inbox owner`. grantMs: how long a lease by message lasts, 0 if there is none.
-- The inbox of a waiter in a group is the name of the group, `inbox/…`; see group.lua.
-- States: h held · o offered · l leaving · w waiting.
--
-- Most rooms never have a second holder, a waiter, a minimum hold or a lock-delay. Such a lone holder is kept as one string instead:
-- `2 t<id>\0<fence> <sinceUs> <facts>`. The fence and sinceUs have 16 digits. The lease ends when the key expires.
--
-- The functions follow law/room.ts one by one. Times are the server's, in ms.
local UNLIMITED, TOMBSTONE, AFTERLIFE = 9007199254740991, 60000, 30000
-- How many waiters one call admits or forgets at most, so that no crowd of readers stops the server for everybody. The
-- next call for the room goes on with the other waiters. The answer names the rooms that have more (`+<index>`).
local budget, unsettled = 200, {}
-- The room that is open, with what is known of it so far: the first member of each section, and its tickets.
local room

-- Redis gets numbers as texts wherever possible: each number that it has to turn into text costs as much as a small
-- command.
local function stamp(number) return string.format('%013.0f', number) end

local function member(prefix)
  return redis.call('ZRANGEBYLEX', room.key, '[' .. prefix, '(' .. prefix .. '\255', 'LIMIT', '0', '1')[1] or false
end

-- The first entry of the holders (e), which stand behind the summary, or of the queue (q), which stands behind the
-- holders.
local function first(section)
  if room.first[section] == nil then
    local rank = tostring((room.summary and 1 or 0) + (section == 'q' and room.holders or 0))
    local entry = redis.call('ZRANGE', room.key, rank, rank)[1]
    room.first[section] = entry and string.sub(entry, 1, 1) == section and entry
  end
  return room.first[section]
end

--@ expiry

local function keep(till) room.needed = math.max(room.needed, till) end
--@ group

--@ tickets

local function erase(ticket)
  -- The index of a single holder is not there, and it does not matter to remove it.
  redis.call('ZREM', room.key, ticket.entry, ticket.index)
  if ticket.group then leaveGroup(ticket) end
  room.tickets[ticket.id] = false
  if room.first[ticket.section] == ticket.entry then room.first[ticket.section] = nil end
end

-- Call it after an erase, if there is something to erase: a full server refuses a script that begins by adding.
local function write(ticket)
  local id, till = ticket.id, stamp(ticket.till)
  local waits = ticket.state == 'w'
  ticket.section = waits and 'q' or 'e'
  local place = ticket.section .. (waits and ticket.number or till)
  ticket.entry = place .. id .. '\0' .. ticket.state .. ' ' .. (waits and till or ticket.number) .. ' ' .. ticket.since .. ' '
    .. ticket.hold .. ' ' .. ticket.facts
  ticket.index = 't' .. id .. '\0' .. place
  if waits or room.holders > 1 then
    redis.call('ZADD', room.key, '0', ticket.entry, '0', ticket.index)
  else
    redis.call('ZADD', room.key, '0', ticket.entry)
  end
  room.tickets[id] = ticket
  local known = room.first[ticket.section]
  if known == false or known and ticket.entry < known then room.first[ticket.section] = ticket.entry end
  keep(waits and ticket.till or ticket.till + share(ticket).delay)
end

local function count(limit)
  if limit < room.limit then
    room.limit, room.smallest = limit, 1
  elseif limit == room.limit then
    room.smallest = room.smallest + 1
  end
end

local function enter(ticket)
  share(ticket)
  if room.holders == 1 then redis.call('ZADD', room.key, '0', ticketOf(first('e')).index) end
  room.holders, room.units = room.holders + 1, room.units + ticket.units
  count(ticket.limit)
  write(ticket)
end

local function drop(ticket)
  share(ticket)
  erase(ticket)
  room.holders, room.units = room.holders - 1, room.units - ticket.units
  if room.holders == 1 then redis.call('ZREM', room.key, ticketOf(first('e')).index) end
  if ticket.limit > room.limit then return end
  room.smallest = room.smallest - 1
  if room.smallest > 0 then return end
  room.limit = UNLIMITED
  if room.holders == 0 then return end
  for _, entry in ipairs(redis.call('ZRANGEBYLEX', room.key, '[e', '(f')) do
    count(share(ticketOf(entry)).limit)
  end
end

local function delay(ticket, from)
  if ticket.state == 'h' then room.closed = math.max(room.closed, from + share(ticket).delay) end
end

local function isEmpty()
  if room.closed > now or first('e') or first('q') then return false end
  local last = redis.call('ZRANGE', room.key, '-1', '-1')[1] or ''
  return string.sub(last, 1, 1) ~= 'y' or tonumber(string.sub(last, 2, 14)) <= now
end

local function summarize()
  -- A closing time in the past is written as 0, because only a room with a 0 there is handed over the quick way
  -- (crowd.lua).
  if room.closed <= now then room.closed = 0 end
  local text = string.format('2 %.0f %.0f %.0f %.0f %.0f %013.0f %.0f', room.holders, room.units, room.limit, room.smallest,
    room.closed, room.kept, room.arrivals)
  if text == room.summary then return end
  -- The new summary is added before the old one is removed. The old one may be the only member, and a key that was
  -- empty for a moment would lose its expiry.
  redis.call('ZADD', room.key, '0', text)
  if room.summary then redis.call('ZREM', room.key, room.summary) end
end

-- Lets Redis keep the open room as long as any of its tickets may come back, and wakes the evicted tickets.
local function close()
  if not room or room.refusal then return end
  if isEmpty() then
    redis.call('DEL', room.key)
  else
    keep(room.closed)
    for _, known in pairs(room.groups) do
      if known and known.stale then writeGroup(known) end
    end
    local expire = room.needed > room.kept
    if expire then room.kept = room.needed + AFTERLIFE end
    summarize()
    if expire then redis.call('PEXPIRE', room.key, string.format('%.0f', math.max(1, room.kept - now))) end
  end
  if not room.woken[1] then return end
  for _, ticket in ipairs(room.woken) do wake(share(ticket).inbox, ticket.id, '') end
end

local function read(summary, second, third)
  local holders, units, limit, smallest, closed, kept, arrivals =
    string.match(summary, '^2 (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  room.summary, room.arrivals, room.holders = summary, tonumber(arrivals), tonumber(holders)
  room.units, room.limit, room.smallest = tonumber(units), tonumber(limit), tonumber(smallest)
  room.closed, room.kept = tonumber(closed), tonumber(kept)
  -- If a stranger has moved the holder, a waiter stands in its place. `expire` would never come to an end with it.
  room.first.e = room.holders > 0 and second and string.sub(second, 1, 1) == 'e' and second
  if room.holders < 2 then
    local after = room.holders == 1 and third or room.holders == 0 and second
    room.first.q = after and string.sub(after, 1, 1) == 'q' and after
  end
end

-- Opens a room, and closes the one before. Returns an answer instead if the key holds no room of this layout.
local function open(key)
  if room and room.key == key then return room.refusal end
  close()
  room = {
    key = key, first = {}, tickets = {}, groups = {}, woken = {}, arrivals = 0, holders = 0, units = 0, limit = UNLIMITED, smallest = 0,
    closed = 0, kept = 0, needed = 0,
  }
  local top = tried('ZRANGE', key, '0', '2')
  local lone = not top and tried('GET', key)
  local content = lone or top and top[1]
  if top and not content then
    room.first.e, room.first.q, room.wasFree = false, false, true
    return
  end
  local layout = string.match(content or '', '^(%d+) ')
  if layout ~= '2' then
    room.refusal = '?' .. (layout or '')
  elseif lone then
    -- The holder is read before the key is removed, so that a text that is no holder stays where it is.
    local holder = parseLone(lone, expiry(key))
--@@ cluster-stay
    redis.call('DEL', key)
    room.first.e, room.first.q = false, false
    enter(holder)
  else
    read(content, top[2], top[3])
  end
  return room.refusal
end

-- Does the step of one ticket in a call for many. A key may hold what only looks like a room. An error there must not
-- end the script: Redis undoes nothing of a script, and the other tickets would never hear what has become of them.
local function attempt(key, step)
  local fine, answer = pcall(function() return open(key) or step() end)
  if fine then return answer end
  local stumbled = type(answer) == 'string' and (string.find(answer, 'attempt to ', 1, true) or string.find(answer, 'bad argument', 1, true))
  if not stumbled then error(answer, 0) end
  room = nil
  return '?'
end

local function admits(ticket)
  -- A ticket takes at least one unit, so usually there is no need to read the ticket.
  if room.closed > now or room.units >= room.limit then return false end
  share(ticket)
  return room.units + ticket.units <= math.min(room.limit, ticket.limit)
end

-- Drops the waiters right behind a lapsed offer that have been silent for an acceptance term of their own: they lose
-- their places together with the offer. Returns false if there are more of them than one call may drop. The offer then
-- stays until the next call.
local function dropSilent()
  while true do
    local entry = first('q')
    local waiter = entry and share(ticketOf(entry))
    if not waiter or heardAt(waiter) + waiter.accept > now then return true end
    if budget == 0 then
      unsettled[room.key] = true
      return false
    end
    budget = budget - 1
    erase(waiter)
  end
end

local function expire()
  while true do
    local entry = first('e')
    if not entry or tonumber(string.sub(entry, 2, 14)) > now then return end
    local holder = ticketOf(entry)
    if holder.state == 'o' and not dropSilent() then return end
    drop(holder)
    delay(holder, holder.till)
  end
end

-- Sends its message to a waiter that is admitted under this fence. The message is the lease if the server heard of the
-- waiter within its acceptance term, and if its process listens here. Returns how many processes got the message.
local function tell(waiter, fence)
  share(waiter)
  local brings = waiter.grant > 0 and not isMarked(waiter, '0') and heardAt(waiter) + waiter.accept > now
  local got, isLease = wake(waiter.inbox, waiter.id, brings and ' ' .. fence .. ' ' .. now or '')
  waiter.told, waiter.granted = true, isLease
  return got
end

-- Whether a message to this waiter reaches nobody, although its process listened when the waiter asked last: the
-- process has ended, or has just lost its connection. If the message does reach a process, it also tells the waiter
-- that it is admitted.
local unreached = {}
local function isUnreached(waiter, fence)
  if isMarked(waiter, '2') then return true end
  if not isMarked(waiter, '1') then return false end
  local inbox = share(waiter).inbox
  if unreached[inbox] == nil then unreached[inbox] = tell(waiter, fence) == 0 end
  if unreached[inbox] then
    erase(waiter)
    waiter.hold = string.sub(waiter.hold, 1, 13) .. '2'
    write(waiter)
  end
  return unreached[inbox]
end

-- The waiter to admit: the head of the queue. If the head is unreached, it is the first waiter behind the head that is
-- not unreached, and that may hold as well. Unreached waiters keep their places: if their process lives, they ask soon,
-- and are not passed again. A call looks at 200 waiters at most.
local steps = 200
local function chosen(head, fence)
  if not isUnreached(head, fence) then return head end
  local front = (room.summary and 1 or 0) + room.holders
  room.unreached = math.max(room.unreached or 1, 1)
  while steps > 0 do
    local rank = tostring(front + room.unreached)
    local entry = redis.call('ZRANGE', room.key, rank, rank)[1]
    if not entry or string.sub(entry, 1, 1) ~= 'q' then break end
    local waiter = ticketOf(entry)
    if waiter.till > now then
      if not admits(waiter) then break end
      if not isUnreached(waiter, fence) then return waiter end
    end
    room.unreached, steps = room.unreached + 1, steps - 1
  end
  -- The waiters behind move up by one place.
  room.unreached = room.unreached - 1
  return head
end

-- Admits waiters from the head of the queue. The asker gets no message, nor does a waiter of the group that asks.
local function admit(asker)
  while true do
    local entry = first('q')
    if not entry then return end
    local waiter = ticketOf(entry)
    local forgotten = waiter.till <= now
    if not forgotten and not admits(waiter) then return end
    if budget == 0 then
      unsettled[room.key] = true
      return
    end
    budget = budget - 1
    if forgotten then
      erase(waiter)
    else
      -- This removes no member. It stands here because a full server refuses a script that begins by adding, as the
      -- next fence does.
      redis.call('ZREM', room.key, '')
      local fence = nextFence()
      if not fence then
        room.stuck = true
        return
      end
      if waiter.id ~= asker and not (waiter.group and waiter.group == room.asking) then
        waiter = chosen(waiter, fence)
        if not waiter.told then tell(waiter, fence) end
      end
      erase(waiter)
      local term = waiter.granted and waiter.grant or waiter.accept
      waiter.state, waiter.number, waiter.since, waiter.till, waiter.hold = 'o', fence, usText, now + term, '0'
      if waiter.granted then waiter.state = 'h' end
      enter(waiter)
    end
  end
end

local function settle(asker)
  expire()
  admit(asker)
end

-- The last lines of an answer: the messages for the process that asks, and the rooms that have more waiters to admit.
local function addRest(answers)
  for _, line in ipairs(own) do answers[#answers + 1] = line end
  for at = 2, #KEYS do
    if unsettled[KEYS[at]] then
      unsettled[KEYS[at]] = nil
      answers[#answers + 1] = '+' .. at - 2
    end
  end
end
