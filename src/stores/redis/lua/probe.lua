-- Runs once each command that the other scripts use, so that a missing permission shows before one of them stops half-way.
--
-- KEYS    1 a key that nobody uses
-- ARGV    1 a channel
-- Result  an empty text, or the error of PUBLISH: without messages waiters lose time, and nothing else
local key = KEYS[1]
redis.call('TIME')
redis.call('DEL', key)
redis.call('SET', key, '', 'PX', 1000)
redis.call('GET', key)
redis.call('MGET', key)
redis.call('PTTL', key)
if redis.REDIS_VERSION_NUM then redis.call('PEXPIRETIME', key) end
redis.call('DEL', key)
redis.call('ZADD', key, 0, 'one', 0, 'other')
redis.call('PEXPIRE', key, 1000)
redis.call('ZRANK', key, 'one')
redis.call('ZRANGE', key, 0, 0)
redis.call('ZRANGEBYLEX', key, '-', '+')
redis.call('ZREM', key, 'one')
redis.call('DEL', key)
local heard = redis.pcall('PUBLISH', ARGV[1], '')
--@@ cluster-probe
return type(heard) == 'table' and heard.err or ''
