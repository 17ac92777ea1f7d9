-- Forgets tickets, whether they hold, wait or are unknown, and admits the next ones.
--
-- KEYS    1 the last fence · 2… the rooms
-- ARGV    1 `c` to leave tombstones, or `r` · 2 the inbox of the process that asks · 3… the ids, in the order of the rooms
-- Result  a line for each ticket with what it was until now: h(eld) · q(ueued) · u(nknown)
--         or ?<layout> if the key holds a room of another layout, or something else
--         then a line *<id> for each ticket to wake in the process that asks, or *<id> <fence> <nowMs> if the ticket holds from now;
--           nowMs is the server's time
--         and a line +<index> for each room in which more can be admitted; the index is that of its first ticket, from 0
--
-- Lone holders come first, without TIME: Redis has removed those whose lease has ended. Then comes a
-- single holder with a crowd behind it or with nobody (crowd.lua), and one of several holders while nobody waits.
-- All other tickets go by room.lua: it removes what has expired, lets the ticket leave, and admits the next waiters. A ticket with a
-- minimum hold stays until that is over.
local answers, general = {}, {}
for at = 2, #KEYS do
  -- Unlike GET, MGET makes no error of a key that holds something else.
  local content = ARGV[1] == 'r' and redis.call('MGET', KEYS[at])[1]
  if content and string.find(content, '2 t' .. ARGV[at + 1] .. '\0', 1, true) == 1 then
    redis.call('DEL', KEYS[at])
    if #KEYS == 2 then return 'h' end
    answers[at - 1] = 'h'
  else
    general[#general + 1] = at
  end
end
if #general == 0 then return table.concat(answers, '\n') end
--@ start
--@ last
--@ fence
--@ wake
--@ crowd
asking = ARGV[2]

-- Lets one of several holders leave, while nobody waits. `top` are the first four members.
local function giveUpShare(key, id, top)
  local holders, units, limit, smallest, rest = string.match(top[1], '^2 (%d+) (%d+) (%d+) (%d+) (0 %d+ %d+)$')
  if not holders or holders < '2' and #holders == 1 or (tonumber(string.match(top[2], '^e(%d%d%d%d%d%d%d%d%d%d%d%d%d)')) or 0) <= now then return end
  -- If a stranger has taken the other holder away, the room would be empty for a moment, and lose its expiry.
  if string.sub(top[3] or '', 1, 1) ~= 'e' then return end
  local behind = tostring(holders + 1)
  local head
  if holders == '2' then head = top[4] else head = redis.call('ZRANGE', key, behind, behind)[1] end
  if head and string.sub(head, 1, 1) == 'q' then return end
  local index = redis.call('ZRANGEBYLEX', key, '[t' .. id .. '\0e', '(t' .. id .. '\0f', 'LIMIT', '0', '1')[1]
  local place = index and string.sub(index, #id + 3) .. id .. '\0'
  local entry = index and redis.call('ZRANGEBYLEX', key, '[' .. place, '(' .. place .. '\255', 'LIMIT', '0', '1')[1]
  if not entry then return end
  local mine, most = string.match(entry, '^h %d+ %d+ 0 (%d+) (%d+) ', #place + 1)
  if not mine then return end
  if tonumber(most) <= tonumber(limit) then smallest = smallest - 1 end
  -- Which of the others has the smallest limit is left to room.lua.
  if tonumber(smallest) < 1 then return end
  if holders == '2' then
    local other = top[2] == entry and top[3] or top[2]
    redis.call('ZREM', key, top[1], entry, index, 't' .. string.match(other, '^[^%z]+', 15) .. '\0' .. string.sub(other, 1, 14))
  else
    redis.call('ZREM', key, top[1], entry, index)
  end
  redis.call('ZADD', key, '0', string.format('2 %.0f %.0f %s %.0f %s', holders - 1, units - mine, limit, smallest, rest))
  return 'h'
end

-- Hands the key over from a single holder to the head of the crowd behind it. Reads entries by places, as isRemembered does.
local function handOver(key, id)
  local top = redis.pcall('ZRANGE', key, '0', '3')
  local mine, head = top[2], top[3]
  if not top[1] and not top.err then return 'u' end
  if not mine then return end
  if string.sub(top[1], 1, 12) ~= '2 1 1 1 1 0 ' then return giveUpShare(key, id, top) end
  if string.sub(mine, 15, 15 + #id) ~= id .. '\0' then return end
  if (tonumber(string.sub(mine, 2, 14)) or 0) <= now or string.sub(mine, #id + 51, #id + 53) ~= ' 0 ' then return end
  if not head then
    redis.call('DEL', key)
    return 'h'
  end
  local at = string.sub(head, 1, 1) == 'q' and string.find(head, '\0', 15, true)
  if not at then return end
  local nextId, till = string.sub(head, 15, at - 1), tonumber(string.sub(head, at + 3, at + 15))
  local heard, listens = tonumber(string.sub(head, at + 34, at + 46)), string.sub(head, at + 47, at + 47)
  local facts = string.sub(head, at + 49)
  local _, before, accept, delay, grant = string.find(facts, '^1 1 (%d+) (%d+) (%d+) ')
  local behind = grant and string.find(facts, ' ', before + 1, true)
  if not behind or not heard or not till then return end
  local inbox = string.sub(facts, before + 1, behind - 1)
  local group, rest
  local slash = string.find(inbox, '/', 1, true)
  if slash then
    local name, digit, count = inbox, nil, nil
    till, heard, digit, count, group = groupOf(key, name)
    if till == 0 then return end
    if listens ~= '3' then listens = digit end
    rest = count ~= '1' and string.format('r%s\0%.0f %.0f%s %.0f 1', name, till, heard, digit, count - 1)
    inbox = string.sub(name, 1, slash - 1)
    facts = string.sub(facts, 1, before) .. inbox .. string.sub(facts, behind)
  end
  if till <= now or listens == '2' or not isRemembered(key, top[4]) then return end
  -- Whether the message may be the lease; see room.lua.
  local brings = grant ~= '0' and listens ~= '0' and heard + accept > now
  if now + (brings and grant or accept) + delay > (tonumber(string.sub(top[1], 13, 25)) or 0) then return end
  -- Comes before the fence: a full server refuses a script that begins by adding.
  local index = 't' .. nextId .. '\0' .. string.sub(head, 1, 14)
  redis.call('ZREM', key, mine, head, index, group or head)
  local fence = nextFence()
  local got, granted
  if fence then got, granted = wake(inbox, nextId, brings and ' ' .. fence .. ' ' .. string.sub(usText, 1, 13) or '') end
  -- If no process got the message, another waiter may get the key; see room.lua.
  if not fence or got == 0 and listens == '1' then
    redis.call('ZADD', key, '0', mine, '0', head, '0', index, '0', group or head)
    return
  end
  local entry = 'e' .. now + (granted and grant or accept) .. nextId .. (granted and '\0h ' or '\0o ') .. fence .. ' ' .. usText
    .. ' 0 ' .. facts
  if rest then
    redis.call('ZADD', key, '0', entry, '0', rest)
  else
    redis.call('ZADD', key, '0', entry)
  end
  return own[1] and 'h\n' .. own[1] or 'h'
end

if #KEYS == 2 and ARGV[1] == 'r' then
  local answer = handOver(KEYS[2], ARGV[3])
  if answer then
    keepFence()
    return answer
  end
end
--@ tried
--@ room
--@ tombstones

local function depart(ticket)
  if not ticket or ticket.state == 'l' then return 'u' end
  if ticket.state == 'w' then
    erase(ticket)
    return 'q'
  end
  local hold = tonumber(ticket.hold)
  if hold > now then
    erase(ticket)
    ticket.state, ticket.till = 'l', hold
    write(ticket)
  else
    drop(ticket)
  end
  return 'h'
end

local function leave(id)
  settle(id)
  local was = depart(find(id))
  if ARGV[1] == 'c' then bury(id, 'g') end
  if was ~= 'u' then admit() end
  return was
end

for _, at in ipairs(general) do answers[at - 1] = attempt(KEYS[at], function() return leave(ARGV[at + 1]) end) end
close()
keepFence()
addRest(answers)
return table.concat(answers, '\n')
