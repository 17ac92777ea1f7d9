-- Keeps tickets alive: one room for each, all on the same terms.
--
-- A group is made of waiters of one process for one key, and is remembered by one entry; see room.lua. A call with `+` begins a group
-- with those tickets of the call that wait, and calls with `=` add more to it. A call with `*` asks about groups: an answer counts for
-- all waiters of the group, as long as none has left it.
--
-- KEYS    1 the last fence · 2… the rooms
-- ARGV    1 ttlMs
--         2 `patienceMs listens minHoldMs`; listens is 1 or 4 if the process that asks receives messages, else 0; see `heard` in
--           room.lua
--         3 `acceptMs inbox` of the process that asks; behind that ` <group>`, ` +<group>`, ` =<group>` or ` *`. With a group there is
--           one room
--         4… the ids, in the order of the rooms. With `*` the names of groups
-- Result  a line for each ticket or group, in the order of the rooms
--           h<fence>       it holds, for ttlMs from now
--           q<askAgainMs> <nowMs>  it waits, and has to ask again after askAgainMs at the latest; nowMs is the server's time
--           g              it neither holds nor waits
--           e<reason>      it was evicted
--           -              with `*`: the server does not know the group, or a waiter has left it
--           ?<layout>      the key holds a room of another layout, or something else
--         then a line +<index> for each room in which more can be admitted; the index is that of its first line, from 0
--
-- Lone holders come first: the script moves the expiry of their keys, without TIME. Then comes the single holder in front of a crowd
-- (crowd.lua). All other tickets go by room.lua: it remembers the waiters of the call anew, removes what has expired, admits the next
-- waiters, and then renews or confirms the ticket.
local ttl = tonumber(ARGV[1])
local accept, inbox, mode, groupName = string.match(ARGV[3], '^(%d+) (%S+) ?([+=*]?)(.*)$')
local answers, general = {}, {}

-- Extends a lease for which GT set nothing, or could not be used. Returns whether it lasts for the ttl from now. A key without an expiry
-- is left to room.lua.
local function extend(key)
  local left = redis.call('PTTL', key)
  return left >= ttl or left > 0 and redis.call('PEXPIRE', key, ARGV[1]) == 1
end

-- Lone holders. In this loop each text that Lua makes costs as much as a small command, and so does each pattern.
-- Unlike GET, MGET makes no error of a key that holds something else.
local contents = mode ~= '*' and redis.call('MGET', unpack(KEYS, 2))
local sub, find, byte, call = string.sub, string.find, string.byte, redis.call
-- A request with a shorter ttl may arrive late. It must not end a lease sooner than promised, and GT never sets an earlier expiry. Redis
-- has GT since version 7, and REDIS_VERSION_NUM as well.
local onlyLater = redis.REDIS_VERSION_NUM and 'GT'
for at = 2, #KEYS do
  local key, id, content = KEYS[at], ARGV[at + 2], contents and contents[at - 1]
  local from = #id + 5
  -- A text that differs in one of these places is left to room.lua. The others are not checked. 50 is the digit 2 of the layout, 116
  -- is `t`, 32 is the blank behind the fence.
  if content and find(content, id, 4, true) == 4 and byte(content, 1) == 50 and byte(content, 3) == 116
    and byte(content, from - 1) == 0 and byte(content, from + 16) == 32 and find(content, inbox, from + 34, true)
    and (onlyLater and call('PEXPIRE', key, ARGV[1], onlyLater) == 1 or extend(key)) then
    answers[at - 1] = 'h' .. sub(content, from, from + 15)
  else
    general[#general + 1] = at
  end
end
if #general == 0 then return table.concat(answers, '\n') end
--@ start
--@ crowd

-- Renews the single holder in front of a crowd, or confirms the ticket that was offered its key.
local function keepHolder(key, id)
  local top = redis.pcall('ZRANGE', key, '0', '2')
  if not top[1] and not top.err then return 'g' end
  local mine = top[2]
  local kept = mine and string.match(top[1], '^2 1 1 1 1 0 (%d+) ')
  if not kept or string.sub(mine, 15, 15 + #id) ~= id .. '\0' or not isRemembered(key, top[3]) then return end
  local fence, since, facts, delay = string.match(mine, '^[ho] (%d+) (%d+) 0 (1 1 %d+ (%d+) .*)$', #id + 16)
  local was = tonumber(string.sub(mine, 2, 14))
  local till = math.max(was, now + ttl)
  if was <= now or not fence or not string.find(facts, inbox, 1, true) or till + delay > tonumber(kept) then return end
  redis.call('ZREM', key, mine)
  redis.call('ZADD', key, '0', 'e' .. till .. id .. '\0h ' .. fence .. ' ' .. since .. ' 0 ' .. facts)
  return 'h' .. fence
end
local patience, listens, minHold = string.match(ARGV[2], '^(%d+) (%d) (%d+)$')
if #KEYS == 2 and mode ~= '*' and minHold == '0' then
  local answer = keepHolder(KEYS[2], ARGV[4])
  if answer then return answer end
end
--@ last
--@ fence
--@ wake
--@ tried
--@ room
--@ asking
--@ tombstones

local asked = {
  ttl = ttl, patience = tonumber(patience), listens = listens, minHold = tonumber(minHold), inbox = inbox,
  accept = tonumber(accept), joins = (mode == '+' or mode == '=') and groupName, begins = mode == '+',
}

local function ask(id)
  -- A renewal puts nothing into a free room. If a server loses its keys, each process asks about all its leases at once.
  if room.wasFree then
    room = nil
    return 'g'
  end
  remember(id, asked)
  settle(id)
  local ticket = find(id)
  -- The next acquire answers why: `!`.
  if room.stuck and ticket and ticket.state == 'w' then return 'g' end
  return ticket and status(ticket, asked) or tombstone(id) or 'g'
end

-- Answers once for all waiters of the group, if none of them has left it.
local function askForGroup(name)
  local known = group(name)
  if not known or known.changed ~= '0' then return '-' end
  -- The group is written before any waiter is admitted.
  hear(known, asked)
  writeGroup(known)
  room.asking = name
  settle()
  if known.changed ~= '0' or room.stuck then return '-' end
  local head = first('q')
  return waiting(asked, head and ticketOf(head).group == name)
end

local together = mode == '' and groupName ~= '' and attempt(KEYS[2], function() return askForGroup(groupName) end)
if together and together ~= '-' then
  general = {}
  for index = 1, #KEYS - 1 do answers[index] = together end
end
local step = mode == '*' and askForGroup or ask
for _, at in ipairs(general) do answers[at - 1] = attempt(KEYS[at], function() return step(ARGV[at + 2]) end) end
close()
keepFence()
addRest(answers)
return table.concat(answers, '\n')
