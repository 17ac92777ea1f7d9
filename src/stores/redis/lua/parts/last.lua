-- Writes `fence` as the last fence, and returns the previous one as a number: 0 if there was none. If the key holds
-- something else, or a number from 9000000000000000 on, this returns nothing and changes nothing. Numbers of Lua are
-- exact below 2^53 only, and the time in microseconds comes there in the year 2255. A last fence between the time and
-- that limit was given before the clock was set back, and the fences go on from it.
local function takeLast(fence)
  local last = redis.pcall('SET', KEYS[1], fence, 'GET')
  if not last then return 0 end
  if type(last) == 'table' then
    if not string.find(last.err, 'WRONGTYPE', 1, true) then error(last.err, 0) end
    return
  end
  if string.find(last, '^%d+$') and (#last < 16 or #last == 16 and last < '9') then return tonumber(last) end
  redis.call('SET', KEYS[1], last)
end
