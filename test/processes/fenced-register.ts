/**
 * The resource's side of fencing, on a Redis key that has nothing to do with the lock. It refuses a write under a lower
 * fence than the last one.
 */
export const FENCED_WRITE = `
local last = redis.call('GET', KEYS[1])
if last and tonumber(ARGV[1]) < tonumber(last) then return 'stale' end
redis.call('SET', KEYS[1], ARGV[1])
return 'written'
`
