-- Tombstones: tickets that were cancelled or evicted stay gone for a while. Behind room.lua, which describes the
-- entries.
local function bury(id, mark)
  local old = member('t' .. id .. '\0x')
  if old then redis.call('ZREM', room.key, old, 'y' .. string.match(old, '^%d+', #id + 4) .. id) end
  for _, place in ipairs(redis.call('ZRANGEBYLEX', room.key, '[y', '[y' .. stamp(now) .. '\255', 'LIMIT', '0', '10')) do
    redis.call('ZREM', room.key, place, member('t' .. string.sub(place, 15) .. '\0x'))
  end
  local ending = stamp(now + TOMBSTONE)
  redis.call('ZADD', room.key, '0', 't' .. id .. '\0x' .. ending .. ' ' .. mark, '0', 'y' .. ending .. id)
  keep(now + TOMBSTONE)
end

-- The answer to a ticket that was cancelled or evicted; nothing for any other ticket.
local function tombstone(id)
  local entry = member('t' .. id .. '\0x')
  if entry and tonumber(string.sub(entry, #id + 4, #id + 16)) > now then return string.sub(entry, #id + 18) end
end
