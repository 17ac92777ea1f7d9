-- When Redis removes a key, by the server's time in ms. Below 0 if it keeps the key for ever. Before version 7 this is up to 1 ms too
-- late, which is safe. Behind start.lua.
local function expiry(key)
  -- Redis tells its version since version 7.
  if redis.REDIS_VERSION_NUM then return redis.call('PEXPIRETIME', key) end
  local left = redis.call('PTTL', key)
  return left < 0 and left or now + left + 1
end
