-- The server's time, by which everything is decided: us for fences, now in ms for the rest.
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)

-- The reply of a command, or nil where the key is of another type.
local function tried(...)
  local reply = redis.pcall(...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  if not string.find(reply.err, 'WRONGTYPE', 1, true) then error(reply.err) end
end
