-- When Redis removes a key, by the server's time in ms. Below 0 if it keeps the key for ever.
local function expiry(key)
  -- Redis tells its version since version 7.
  if redis.REDIS_VERSION_NUM then return redis.call('PEXPIRETIME', key) end
  -- The time is asked for afterwards, so that the result may be too late and is never too early.
  local left, at = redis.call('PTTL', key), redis.call('TIME')
  return left < 0 and left or at[1] * 1000 + math.floor(at[2] / 1000) + left + 1
end
