-- Servers older than 7 have no messages for one slot.
local sharded = redis.pcall('SPUBLISH', ARGV[1], '')
if type(sharded) == 'table' and not string.find(sharded.err, 'nknown', 1, true) then heard = sharded end
