-- Lists the votes in a room of this server, to find out why no ticket has a quorum. Changes nothing.
--
-- KEYS    1 the room
-- Result  a line `<expiresAt> <id>` for each ticket that holds here or is offered the key
--@ start
--@ expiry
local lines = {}
local function add(till, id, state)
  if id and state ~= 'l' and tonumber(till) > now then lines[#lines + 1] = till .. ' ' .. id end
end

local lone = redis.pcall('GET', KEYS[1])
if type(lone) == 'string' then
  add(string.format('%013.0f', expiry(KEYS[1])), string.match(lone, '^2 t([^%z]+)%z%d+ %d+ '), 'h')
elseif lone then
  for _, entry in ipairs(redis.call('ZRANGEBYLEX', KEYS[1], '[e', '(f')) do
    add(string.match(entry, '^e(%d%d%d%d%d%d%d%d%d%d%d%d%d)([^%z]+)%z(%a) '))
  end
end
return table.concat(lines, '\n')
