-- Tombstones: tickets that were cancelled or evicted stay gone for a while. Behind room.lua, which describes the
-- entries.
local function bury(id, mark)
  local old = member('x' .. id .. '\0')
  if old then redis.call('ZREM', room.key, old, 'y' .. string.match(old, '^%d+', #id + 3) .. id) end
  for _, place in ipairs(redis.call('ZRANGEBYLEX', room.key, '[y', '[y' .. stamp(now) .. '\255', 'LIMIT', '0', '10')) do
    redis.call('ZREM', room.key, place, member('x' .. string.sub(place, 15) .. '\0'))
  end
  local ending = stamp(now + TOMBSTONE)
  redis.call('ZADD', room.key, '0', 'x' .. id .. '\0' .. ending .. ' ' .. mark, '0', 'y' .. ending .. id)
  keep(now + TOMBSTONE)
end

-- The answer to a ticket that was cancelled or evicted; nothing for any other ticket.
local function tombstone(id)
  local entry = member('x' .. id .. '\0')
  if entry and tonumber(string.sub(entry, #id + 3, #id + 15)) > now then return string.sub(entry, #id + 17) end
end
