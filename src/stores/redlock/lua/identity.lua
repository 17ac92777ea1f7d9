-- Since when this server has forgotten nothing, and who it is. Written down beside the rooms, so that it is lost with them.
--
-- KEYS    1 where that is written down
-- ARGV    1 a name for a memory that begins now · 2 `d` where a restart of the server forgets nothing
-- Result  <name of the memory> <run id, or -> <how old the memory is, in ms> · or `replica`
--@ start
-- A user without INFO does not learn of restarts that lost a part of the memory. All of it is noticed by anybody.
local function fact(section, pattern)
  local text = redis.pcall('INFO', section)
  return type(text) == 'string' and string.match(text, pattern) or nil
end

if fact('replication', 'role:(%a+)') == 'slave' then return 'replica' end
local run = fact('server', 'run_id:(%x+)') or '-'
local name, last, since = string.match(redis.call('GET', KEYS[1]) or '', '^(%S+) (%S+) (%d+)$')
since = tonumber(since)
if not name then
  name, since = ARGV[1], now
elseif run ~= '-' and last ~= '-' and last ~= run and ARGV[2] ~= 'd' then
  since = math.max(since, now - tonumber(fact('server', 'uptime_in_seconds:(%d+)') or 0) * 1000)
end
-- The clock was set back. That the memory began now is never too early.
since = math.min(since, now)
local written = name .. ' ' .. (run == '-' and last or run) .. ' ' .. string.format('%013.0f', since)
redis.call('SET', KEYS[1], written)
return name .. ' ' .. run .. ' ' .. string.format('%.0f', math.max(0, now - since))
