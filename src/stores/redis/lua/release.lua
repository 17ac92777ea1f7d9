-- Forgets tickets, whether they hold, wait or are unknown, and admits who is next.
--
-- KEYS    1 the last fence · 2… the rooms
-- ARGV    1 `c` to leave tombstones, or `r` · 2… the ids
-- Result  a line for each ticket: what it was: h(eld) · q(ueued) · u(nknown) · ?<layout>
--@ start
local answers, general = {}, {}

-- Nobody, or a lone holder without a minimum hold; see room.lua for where its expiry is.
for at = 2, #KEYS do
  local content = redis.pcall('GET', KEYS[at])
  local lone = '1 t' .. ARGV[at] .. '\0h '
  if ARGV[1] == 'c' then
    general[#general + 1] = at
  elseif not content then
    answers[at - 1] = 'u'
  elseif
    type(content) == 'string' and string.sub(content, 1, #lone) == lone
    and string.sub(content, #lone + 48, #lone + 50) == ' 0 '
    and tonumber(string.sub(content, #lone + 35, #lone + 47)) > now
  then
    redis.call('DEL', KEYS[at])
    answers[at - 1] = 'h'
  else
    general[#general + 1] = at
  end
end
if #general == 0 then return table.concat(answers, '\n') end

--@ fence
--@ room

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

for _, at in ipairs(general) do answers[at - 1] = attempt(KEYS[at], function() return leave(ARGV[at]) end) end
close()
keepFence()
return table.concat(answers, '\n')
