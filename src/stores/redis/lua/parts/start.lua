-- The server's time, by which everything is decided, in ms. Written so because numbers are slow to become text, and each new text
-- costs about as much as a small command: it is looked for among all that the server knows.
local time = redis.call('TIME')
local now, micros = time[1] * 1000 + math.floor(time[2] / 1000), time[2]
local usText = time[1] .. (#micros == 6 and micros or string.sub('00000' .. micros, -6))
