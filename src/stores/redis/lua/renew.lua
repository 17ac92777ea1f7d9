-- Keeps tickets alive: one room for each, all on the same terms.
--
-- KEYS    1 the last fence · 2… the rooms
-- ARGV    1 ttlMs · 2 minHoldMs · 3 patienceMs · 4 keepMs: how long a room of one such holder has to be kept
--         5 acceptMs · 6 the inbox of who asks · 7… the ids
-- Result  for each ticket h<fence> · q<askAgainMs> · g · e<reason> · ?<layout>
--@ start
local ttl, inbox = tonumber(ARGV[1]), ARGV[6]
local answers, general = {}, {}

-- Lone holders. Of their entry only the expiry is new, which has its place; see room.lua.
for at = 2, #KEYS do
  local content = redis.pcall('GET', KEYS[at])
  local lone = '1 t' .. ARGV[at + 5] .. '\0h '
  if not content then
    answers[at - 1] = 'g'
  elseif type(content) == 'string' and string.sub(content, 1, #lone) == lone and string.find(content, inbox, #lone, true) then
    local till = tonumber(string.sub(content, #lone + 35, #lone + 47))
    if till < now + ttl and till > now then
      local renewed = string.sub(content, 1, #lone + 34) .. now + ttl .. string.sub(content, #lone + 48)
      if redis.pcall('SET', KEYS[at], renewed, 'PX', ARGV[4]).err then
        -- A full server refuses to set a key unless the script has written something before: no lease is lost to that.
        redis.call('PEXPIRE', KEYS[at], ARGV[4])
        redis.call('SET', KEYS[at], renewed, 'KEEPTTL')
      end
    end
    answers[at - 1] = till > now and 'h' .. string.sub(content, #lone + 1, #lone + 16) or 'g'
  else
    general[#general + 1] = at
  end
end
if #general == 0 then return answers end

--@ fence
--@ room

local asked = {
  ttl = ttl, minHold = tonumber(ARGV[2]), patience = tonumber(ARGV[3]), accept = tonumber(ARGV[5]), inbox = inbox,
}
for _, at in ipairs(general) do
  local id = ARGV[at + 5]
  answers[at - 1] = open(KEYS[at])
  if not answers[at - 1] then
    remember(id, asked)
    settle(id)
    local ticket = find(id)
    answers[at - 1] = ticket and status(ticket, asked) or tombstone(id) or 'g'
    close()
  end
end
keepFence()
return answers
