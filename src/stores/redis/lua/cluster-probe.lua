-- Servers older than 7 have no messages for one slot.
local heard = redis.pcall('SPUBLISH', ARGV[1], '')
if type(heard) == 'table' and not string.find(heard.err, 'nknown', 1, true) then error(heard.err, 0) end
