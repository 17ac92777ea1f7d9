-- The server's time, by which everything is decided, in ms. Written so because numbers are slow to become text.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local usText = time[1] .. string.sub('00000' .. time[2], -6)
