-- The server's time, by which everything is decided: us for fences, now in ms for the rest.
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
