-- The server's time in ms, by which a script decides everything. The arithmetic avoids turning numbers into text. A new
-- text costs about as much as a small command, because Lua looks for it among all texts that it has.
local time = redis.call('TIME')
local now, micros = time[1] * 1000 + math.floor(time[2] / 1000), time[2]
local usText = time[1] .. (#micros == 6 and micros or string.sub('00000' .. micros, -6))
