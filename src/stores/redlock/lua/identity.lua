-- Which server this is, and since when it has forgotten nothing. A note of that stands beside the rooms, and is lost with them.
--
-- KEYS    1 the note: `<name of the memory> <run id, or -> <since, in ms>`
-- ARGV    1 a name for the memory, if it begins now · 2 `d` if a restart of the server forgets nothing
-- Result  <name of the memory> <run id, or -> <age of the memory, in ms> · or `replica`
--
-- Without a note the memory begins now. So it does on a replica that was promoted: its master may have given votes that the replica
-- has not heard of. After a restart that may have lost something the memory begins with the restart. Otherwise it is as old as the
-- note says.
--@ start
-- A user without INFO notices no promotion, and no restart that lost a part of the memory. A loss of everything is always noticed.
local function fact(section, pattern)
  local text = redis.pcall('INFO', section)
  return type(text) == 'string' and string.match(text, pattern) or nil
end

if fact('replication', 'role:(%a+)') == 'slave' then return 'replica' end

-- Redis knows the replication id that it had as a replica. It also knows one after a restart of a master with replicas, from
-- its snapshot.
local function mayBePromoted() return string.find(fact('replication', 'master_replid2:(%x+)') or '', '[^0]') end

local run = fact('server', 'run_id:(%x+)') or '-'
local name, last, since = string.match(redis.call('GET', KEYS[1]) or '', '^(%S+) (%S+) (%d+)$')
since = tonumber(since)
if not name then
  name, since = ARGV[1], now
elseif run ~= '-' and last ~= '-' and last ~= run then
  if mayBePromoted() then
    since = now
  elseif ARGV[2] ~= 'd' then
    -- The server counts in whole seconds, and may count one too many.
    local uptime = math.max(0, tonumber(fact('server', 'uptime_in_seconds:(%d+)') or 0) - 1)
    since = math.max(since, now - uptime * 1000)
  end
end
-- If the clock was set back, the memory begins now: later than the truth, and so never too early.
since = math.min(since, now)
local written = name .. ' ' .. (run == '-' and last or run) .. ' ' .. string.format('%013.0f', since)
redis.call('SET', KEYS[1], written)
return name .. ' ' .. run .. ' ' .. string.format('%.0f', math.max(0, now - since))
