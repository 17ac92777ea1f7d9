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
-- Lone holders and free rooms come first. Then comes the hand-over to the head of a crowd (crowd.lua). All other tickets
-- go by room.lua: it removes what has expired, lets the ticket leave, and admits the next waiters. A ticket with a minimum hold stays
-- until that is over.
--@ start
-- A lone holder without a minimum hold; see room.lua for where its expiry is.
local function isPlain(content, id)
  local at = #id + 6
  return string.find(content, '1 t' .. id .. '\0h ', 1, true) == 1 and string.find(content, ' 0 ', at + 48, true) == at + 48
    and tonumber(string.sub(content, at + 35, at + 47)) > now
end

local answers, general = {}, {}
for at = 2, #KEYS do
  local content = ARGV[1] == 'r' and redis.pcall('GET', KEYS[at])
  if type(content) == 'string' and isPlain(content, ARGV[at + 1]) then
    redis.call('DEL', KEYS[at])
    answers[at - 1] = 'h'
  elseif not content and ARGV[1] == 'r' then
    answers[at - 1] = 'u'
  else
    general[#general + 1] = at
  end
end
if #general == 0 then return answers[2] and table.concat(answers, '\n') or answers[1] end
--@ last
--@ fence
--@ wake
--@ crowd
asking = ARGV[2]

-- Hands the key over from a single holder to the head of the crowd behind it.
local function handOver(key, id)
  local was = crowd(key)
  if not was or not was.head or string.sub(was.place, 15) ~= id then return end
  local mine = entryOf(key, id)
  if not mine or not string.find(mine, '^[ho] %d+ %d+ %d+ 0 ', #id + 3) then return end
  local nextId = string.sub(was.head, 15)
  local waiter = waiterOf(key, nextId)
  if not waiter or waiter.till <= now or waiter.listens == '2' or not isRemembered(key, was.second) then return end
  local terms, accept, delay, grant, inbox, owner =
    string.match(waiter.entry, '^w %d+ %d+ %d+ %d+ (1 1 (%d+) (%d+) (%d+)) ([^ /]+)%S* (.*)$', #nextId + 3)
  if not inbox then return end
  -- Whether the message may be the lease; see room.lua.
  local brings = grant ~= '0' and waiter.listens ~= '0' and waiter.heard + accept > now
  if now + (brings and grant or accept) + delay > was.kept then return end
  -- Comes before the fence: a full server refuses a script that begins by adding.
  local together = waiter.group or mine
  redis.call('ZREM', key, mine, was.place, waiter.entry, was.head, together)
  local fence = nextFence()
  local got, granted
  if fence then got, granted = wake(inbox, nextId, brings and ' ' .. fence .. ' ' .. now or '') end
  -- If no process got the message, another waiter may get the key; see room.lua.
  if not fence or got == 0 and waiter.listens == '1' then
    redis.call('ZADD', key, '0', mine, '0', was.place, '0', waiter.entry, '0', was.head, '0', together)
    return
  end
  local till = now + (granted and grant or accept)
  local entry = 't' .. nextId .. (granted and '\0h ' or '\0o ') .. fence .. ' ' .. usText .. ' ' .. till .. ' 0 ' .. terms .. ' ' .. inbox .. ' ' .. owner
  local place = 'e' .. till .. nextId
  redis.call('ZADD', key, '0', entry, '0', place, '0', waiter.group and not waiter.isLast and waiter.without or place)
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
