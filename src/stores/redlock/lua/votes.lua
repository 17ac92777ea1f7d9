-- Lists the votes in a room of this server, to find out why no ticket has a quorum. Changes nothing.
--
-- KEYS    1 the room
-- Result  a line `<expiresAt> <id>` for each ticket that holds here or is offered the key
--@ start
local lines = {}
local function add(entry)
  local id, state, till = string.match(entry, '^t(.-)%z(%a) %d+ %d+ (%d+) ')
  if id and state ~= 'l' and tonumber(till) > now then lines[#lines + 1] = till .. ' ' .. id end
end

local lone = redis.pcall('GET', KEYS[1])
if type(lone) == 'string' then
  add(string.sub(lone, 3))
elseif lone then
  for _, place in ipairs(redis.call('ZRANGEBYLEX', KEYS[1], '[e', '(f')) do
    local from = 't' .. string.sub(place, 15) .. '\0'
    add(redis.call('ZRANGEBYLEX', KEYS[1], '[' .. from, '(' .. from .. '\255', 'LIMIT', '0', '1')[1] or '')
  end
end
return table.concat(lines, '\n')
