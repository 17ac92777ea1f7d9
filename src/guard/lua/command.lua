-- Runs one command. guard.lua comes in front of it.
-- KEYS: the keys of the command. ARGV: the command, then what comes after its keys.
-- Result: the reply to the command.
local command = { table.remove(ARGV, 1) }
for _, key in ipairs(KEYS) do command[#command + 1] = key end
for _, argument in ipairs(ARGV) do command[#command + 1] = argument end
return redis.call(unpack(command))
