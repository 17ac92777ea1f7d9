-- Looks whether Holdfast has used this server before, and writes the note of identity.lua if an operator says that it has not.
--
-- KEYS    1 the note; see identity.lua · 2 the last fence
-- ARGV    1 a name for the memory · 2 `w` to write the note if there is neither a note nor a fence, or `l` to look only
-- Result  `<n, k or f> <run id, or -> <age of the memory, in ms>` · or `replica`
--         n: there was neither a note nor a fence · k: there is a note · f: there is a fence without a note
--@ start
local function fact(section, pattern)
  local text = redis.pcall('INFO', section)
  return type(text) == 'string' and string.match(text, pattern) or nil
end

if fact('replication', 'role:(%a+)') == 'slave' then return 'replica' end
local run = fact('server', 'run_id:(%x+)') or '-'
local note = redis.call('GET', KEYS[1])
if note then
  local last, since = string.match(note, ' (%S+) (%d+)$')
  since = tonumber(since) or now
  -- An earlier call has written this note, the server has not restarted, and no lock was granted: it is as new as it was.
  if since == 1 and last == run and not redis.call('GET', KEYS[2]) then return 'n ' .. run .. ' ' .. string.format('%.0f', now) end
  return 'k ' .. run .. ' ' .. string.format('%.0f', math.max(0, now - since))
end
if redis.call('GET', KEYS[2]) then return 'f ' .. run .. ' 0' end
-- As if the server had been in use for years: it has forgotten no holder, because there was none.
if ARGV[2] == 'w' then redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. run .. ' ' .. string.format('%013.0f', 1)) end
return 'n ' .. run .. ' 0'
