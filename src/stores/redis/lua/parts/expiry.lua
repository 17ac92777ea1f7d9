-- When a key expires, by the server's time in ms. Below 0 if the key is gone or has no expiry.
local function expiry(key)
  -- Redis has PEXPIRETIME since version 7, and REDIS_VERSION_NUM as well.
  if redis.REDIS_VERSION_NUM then return redis.call('PEXPIRETIME', key) end
  -- TIME comes after PTTL, and both are rounded down, therefore the 1. So the result may be too late, and is never too early.
  local left, at = redis.call('PTTL', key), redis.call('TIME')
  return left < 0 and left or at[1] * 1000 + math.floor(at[2] / 1000) + left + 1
end
