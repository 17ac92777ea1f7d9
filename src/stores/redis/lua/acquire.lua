-- Asks for keys, or asks again: one room for each ticket, all tickets on the same terms.
--
-- KEYS    1 the last fence · 2… the rooms
-- ARGV    1 ttlMs
--         2 `patienceMs listens minHoldMs lockDelayMs`; listens is 1 or 4 if the process that asks receives messages, else 0; see
--           `heard` in room.lua. Behind it ` +<group>` or ` =<group>`: those tickets of the call that wait are added to the group; see
--           renew.lua
--         3 facts; see room.lua · 4… the ids, in the order of the rooms
--         5 on redlock only, where each call has one id: the proposed fence, or `-` for a ticket without a fence, or nothing; see
--           proposal.lua and unfenced.lua
-- Result  a line for each ticket, in the order of the rooms
--           h<fence>                it holds
--           q<ahead> <askAgainMs> <nowMs>   it waits behind so many others, and has to ask again after askAgainMs at the latest;
--                                   nowMs is the server's time
--           b<retryMs>              the key is taken, and the ticket has no patience
--           g                       the ticket is over: cancelled, or released before its minimum hold was over
--           e<reason>               it was evicted
--           !                       the ticket is to be admitted, but the stored last fence is none to count on from, so no ticket is
--           ?<layout>               the key holds a room of another layout, or something else
--         then a line +<index> for each room in which more can be admitted; the index is that of its first ticket, from 0
--
-- Each ticket gets the first of these answers that fits. The sections 1 to 5 give the same answers as 6, only faster.
--   1 One free room, no minimum hold and no lock-delay: the ticket holds.
--   2 One room with a lone holder that has the key for itself, and a new ticket without patience: it is busy.
--   3 One room with a single holder that has the key for itself, perhaps with a crowd behind it (crowd.lua), and a new ticket. Without
--     patience it is busy. With patience, and without minimum hold and lock-delay, it waits.
--   4 One room with other holders, and a new ticket. If the ticket does not fit and has no patience, it is busy. If it fits and nobody
--     waits, and it has neither minimum hold nor lock-delay, it holds.
--   5 Several free rooms, no minimum hold and no lock-delay: each ticket holds.
--   6 Anything else, by room.lua. First the script remembers the ticket anew if it waits, removes what has expired, and admits the
--     next waiters. Then a ticket that still waits goes on waiting. A holder is renewed, an offer is confirmed. A ticket with a
--     tombstone is over. If no other ticket waits and the holders leave room, a new ticket holds. Otherwise it waits, or is busy if
--     it has no patience.
--@ start
-- Whether the call has no minimum hold, no lock-delay and no group. Then a ticket that gets a free room is a lone holder; see room.lua.
local canBeLone = string.find(ARGV[2], ' 0 0', -4, true)

--@ last

-- 1. Nearly every request is for one free room, and needs one small key. Everything else is defined only when it is
-- needed.
if #KEYS == 2 and canBeLone then
  local fence = usText
--@@ proposal
  if redis.call('SET', KEYS[2], '2 t' .. ARGV[4] .. '\0' .. fence .. ' ' .. usText .. ' ' .. ARGV[3], 'PX', ARGV[1], 'NX') then
--@@ unfenced
    local last = takeLast(fence)
    if not last then
      redis.call('DEL', KEYS[2])
      return '!'
    end
    if last < tonumber(fence) then return 'h' .. fence end
    -- The server's clock is not beyond the last fence: the clock was set back, or this is the same microsecond.
    local given = string.format('%.0f', last + 1)
    redis.call('SET', KEYS[1], given)
    redis.call('SET', KEYS[2], '2 t' .. ARGV[4] .. '\0' .. given .. ' ' .. usText .. ' ' .. ARGV[3], 'PX', ARGV[1])
    return 'h' .. given
  end
end

local patience, listens = string.match(ARGV[2], '^(%d+) (%d)')

-- 2. A lone holder that has the key for itself, and a ticket without patience. Unlike GET, MGET makes no error of a key that holds
-- something else.
local lone = #KEYS == 2 and patience == '0' and redis.call('MGET', KEYS[2])[1]
local idEnd = lone and string.sub(lone, 1, 3) == '2 t' and string.find(lone, '\0', 4, true)
if idEnd and string.sub(lone, 4, idEnd - 1) ~= ARGV[4] and string.sub(lone, idEnd + 34, idEnd + 38) == ' 1 1 ' then
  local left = redis.call('PTTL', KEYS[2])
  if left > 0 then return 'b' .. left end
end
--@ fence
if #KEYS == 2 and not lone then
--@ crowd
  local key, id = KEYS[2], ARGV[4]

  -- A ticket is known by its index or by its tombstone. A single holder has neither.
  local function isKnown(holder)
    return string.sub(holder, 15, 15 + #id) == id .. '\0'
      or redis.call('ZRANGEBYLEX', key, '[t' .. id .. '\0', '(t' .. id .. '\1', 'LIMIT', '0', '1')[1]
  end

  -- 3. A single holder that has the key for itself.
  local function join(summary, holder, head)
    local kept, arrivals = string.sub(summary, 13, 25), (tonumber(string.sub(summary, 27)) or 0) + 1
    local change = (tonumber(string.sub(holder, 2, 14)) or 0) - now
    if change <= 0 or not isRemembered(key, head) then return end
    local accept = string.match(ARGV[3], '^%d+ %d+ (%d+)')
    local till = now + patience
    if till > (tonumber(kept) or 0) or isKnown(holder) then return end
    if patience == '0' then return 'b' .. change end
    if not canBeLone then return end
    local place = 'q' .. string.format('%013.0f', arrivals)
    local entry = place .. id .. '\0w ' .. till .. ' ' .. usText .. ' ' .. string.sub(usText, 1, 13) .. listens .. ' ' .. ARGV[3]
    redis.call('ZREM', key, summary)
    redis.call('ZADD', key, '0', '2 1 1 1 1 0 ' .. kept .. ' ' .. arrivals, '0', entry, '0', 't' .. id .. '\0' .. place)
    local least = head and string.sub(head, 1, 1) == 'q' and accept / 6 or 0
    local staying = math.min(patience / 3, accept * 2 / 3, math.max(least, change))
    return 'q' .. redis.call('ZRANK', key, entry) - 2 .. ' ' .. math.ceil(staying) .. ' ' .. string.sub(usText, 1, 13)
  end

  -- 4. Holders that share the key.
  local function share(summary, holder, third)
    local holders, units, limit, smallest, kept, arrivals = string.match(summary, '^2 (%d+) (%d+) (%d+) (%d+) 0 (%d+) (%d+)$')
    local change = holders and (tonumber(string.match(holder, '^e(%d%d%d%d%d%d%d%d%d%d%d%d%d)')) or 0) - now
    if not holders or change <= 0 then return end
    local behind = tostring(holders + 1)
    local head
    if holders == '1' then head = third else head = redis.call('ZRANGE', key, behind, behind)[1] end
    local mine, most = string.match(ARGV[3], '^(%d+) (%d+) ')
    local fits = units + mine <= math.min(limit, most)
    local till = now + ARGV[1]
    local isQueue = head and string.sub(head, 1, 1) == 'q'
    -- With a queue, waiters may fit that an earlier call could not admit any more.
    if not fits and patience == '0' and not isQueue then return not isKnown(holder) and 'b' .. change end
    if not fits or isQueue or not canBeLone or till > tonumber(kept) or isKnown(holder) then return end
    if tonumber(most) < tonumber(limit) then limit, smallest = most, 0 end
    if tonumber(most) == tonumber(limit) then smallest = smallest + 1 end
    local sum = string.format('2 %s %.0f %s %.0f 0 %s %s', behind, units + mine, limit, smallest, kept, arrivals)
    local index = 't' .. id .. '\0e' .. till
    -- A single holder has no index, and gets one with the second holder.
    local only = holders == '1' and string.match(holder, '^[^%z]+', 15)
    if holders == '1' and not only then return end
    local itsIndex = only and 't' .. only .. '\0' .. string.sub(holder, 1, 14) or index
    local fence = nextFence()
    if not fence then return '!' end
    local entry = 'e' .. till .. id .. '\0h ' .. fence .. ' ' .. usText .. ' 0 ' .. ARGV[3]
    redis.call('ZADD', key, '0', sum, '0', entry, '0', index, '0', itsIndex)
    redis.call('ZREM', key, summary)
    keepFence()
    return 'h' .. fence
  end

  local top, answer = redis.pcall('ZRANGE', key, '0', '2'), nil
  local summary, holder = top[1], top[2]
  if holder and string.sub(summary, 1, 12) == '2 1 1 1 1 0 ' then
    answer = join(summary, holder, top[3])
  elseif holder then
    answer = share(summary, holder, top[3])
  end
  if answer then return answer end
end
local answers, general = {}, {}

-- 5. Several free rooms.
local state = ' ' .. usText .. ' ' .. ARGV[3]
for at = 2, #KEYS do
  local fence = lastFence and nextFence() or usText
  local prefix = '2 t' .. ARGV[at + 2] .. '\0'
  if canBeLone and #KEYS > 2 and redis.call('SET', KEYS[at], prefix .. fence .. state, 'PX', ARGV[1], 'NX') then
    if not lastFence then
      local given = nextFence()
      if not given then
        redis.call('DEL', KEYS[at])
      elseif given ~= usText then
        -- The server's clock is not beyond the last fence: the clock was set back, or this is the same microsecond.
        redis.call('SET', KEYS[at], prefix .. given .. state, 'PX', ARGV[1])
      end
      fence = given
    end
    answers[at - 1] = fence and 'h' .. fence or '!'
  else
    general[#general + 1] = at
  end
end

-- 6. Anything else.
if #general > 0 then
--@ wake
--@ tried
--@ room
--@ asking
--@ tombstones

  local function queued(ticket, asked)
    local before = (room.summary and 1 or 0) + room.holders
    local ahead = redis.call('ZRANK', room.key, ticket.entry) - before
    return 'q' .. ahead .. ' ' .. string.sub(status(ticket, asked), 2)
  end

  local function ask(id, asked)
    remember(id, asked)
    settle(id)
    local ticket = find(id)
    if ticket and ticket.state == 'w' then return room.stuck and '!' or queued(ticket, asked) end
    local known = ticket and status(ticket, asked) or tombstone(id)
    if known then return known end
    if room.stuck then return '!' end
    ticket = share({ id = id, since = usText, facts = ARGV[3] })
    if not first('q') and admits(ticket) then
      ticket.state, ticket.number, ticket.hold = 'h', nextFence(), minimumHold(asked)
      if not ticket.number then return '!' end
      ticket.till = math.max(now + asked.ttl, ticket.hold)
      enter(ticket)
      return 'h' .. ticket.number
    end
    if asked.patience == 0 then return 'b' .. untilChange() end
    room.arrivals = room.arrivals + 1
    ticket.state, ticket.number, ticket.till, ticket.hold = 'w', stamp(room.arrivals), now + asked.patience, now .. asked.listens
    if asked.joins then joinGroup(ticket, asked.joins, asked) end
    write(ticket)
    return queued(ticket, asked)
  end

  local minHold, mode, groupName = string.match(ARGV[2], '^%d+ %d (%d+) %d+ ?([+=]?)(.*)$')
  local asked = share({
    ttl = tonumber(ARGV[1]), patience = tonumber(patience), listens = listens, minHold = tonumber(minHold), facts = ARGV[3],
    joins = mode ~= '' and groupName, begins = mode == '+',
  })
  for _, at in ipairs(general) do
    answers[at - 1] = attempt(KEYS[at], function() return ask(ARGV[at + 2], asked) end)
  end
  close()
  addRest(answers)
end
keepFence()
return table.concat(answers, '\n')
