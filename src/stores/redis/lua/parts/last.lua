-- Puts a fence in the place of the last one, and returns the last one as a number: 0 where there was none. Nothing, and nothing
-- is changed, where the key holds something else, or a number that is not below 9000000000000000: numbers of Lua are exact
-- below 2^53 only, and the time in microseconds is there in the year 2255. A last fence between the time and that was given
-- before the clock was set back, and the fences go on from there.
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
