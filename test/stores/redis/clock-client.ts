import { Redis } from 'ioredis'
import type { IoredisClient, IoredisConnection } from '../../../src/stores/redis/index.ts'

/**
 * A client that lets the scripts of the store see a time that the test sets. It replaces the commands of a script that read or set times,
 * and deletes expired lone holders before the script. The expiry of a lone holder stands in a second key, `<room>:until`. Redis still has
 * a key in the millisecond in which it expires. This clock does not, like the law.
 */
export function clockClient(
  url: string,
): IoredisClient & { call: unknown; setTime(ms: number): Promise<void> } {
  const clock = new Redis(url)
  return {
    status: 'wait',
    options: {},
    duplicate: (override) =>
      withClock(new Redis(url, { ...override }), () => "redis.call('MGET', 'clock:s', 'clock:us')"),
    async setTime(ms) {
      await clock.mset('clock:s', Math.floor(ms / 1000), 'clock:us', (ms % 1000) * 1000)
    },
    call: () => undefined,
  }
}

/**
 * The same for the servers of a cluster. A script on a cluster may read no key of another slot, so the time stands in the script.
 */
export function clusterClockClient(now: () => number): IoredisClient & { call: unknown } {
  const answer = () => `{'${Math.floor(now() / 1000)}', '${(now() % 1000) * 1000}'}`
  return {
    status: 'wait',
    options: {},
    duplicate: (override) => withClock(new Redis({ ...override }), answer),
    call: () => undefined,
  }
}

function withClock(redis: Redis, answer: () => string): IoredisConnection & ShardSubscriber {
  return withScripts(redis, (text) => {
    const script = text.replace(/\bredis\.(p?call)\b/g, 'clocked.$1')
    return CLOCKED.replace('$TIME', answer()) + script
  })
}

/** Changes the text of each script. It sends no EVALSHA, because the SHA-1 of a changed script is another one. */
export function withScripts(
  redis: Redis,
  change: (text: string) => string,
): IoredisConnection & ShardSubscriber {
  return {
    status: 'wait',
    call(command, args) {
      if (command === 'EVALSHA') return Promise.reject(new Error('NOSCRIPT'))
      if (command !== 'EVAL') return redis.call(command, args)
      const [text = '', ...rest] = args
      return redis.call(command, [change(text), ...rest])
    },
    on: (event, listener) => redis.on(event, listener),
    subscribe: (channel) => redis.subscribe(channel),
    ssubscribe: (channel) => redis.ssubscribe(channel),
    sunsubscribe: (channel) => redis.sunsubscribe(channel),
    disconnect: () => redis.disconnect(),
  }
}

/** Stands in front of a script, in which `clocked` takes the place of `redis`. */
const CLOCKED = `
local clocked = {}
do
  local time = $TIME
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local DAY = '86400000'

  local function untilOf(key) return tonumber(redis.call('GET', key .. ':until') or nil) end
  local function keepUntil(key, till) redis.call('SET', key .. ':until', string.format('%.0f', till), 'PX', DAY) end
  local function left(key, kept)
    if redis.call('EXISTS', key) == 0 then return -2 end
    return kept or -1
  end

  local own = {
    TIME = function() return time end,
    SET = function(key, value, ...)
      local rest, ttl, keeps = { ... }, nil, false
      for at, word in ipairs(rest) do
        if word == 'PX' then ttl, rest[at + 1] = tonumber(rest[at + 1]), DAY end
        if word == 'KEEPTTL' then keeps = true end
      end
      local reply = redis.pcall('SET', key, value, unpack(rest))
      if ttl and reply and not reply.err then keepUntil(key, now + ttl) end
      if not ttl and not keeps then redis.call('DEL', key .. ':until') end
      return reply
    end,
    PEXPIRE = function(key, ttl, mode)
      if redis.call('TYPE', key).ok ~= 'string' then return redis.call('PEXPIRE', key, ttl) end
      if mode == 'GT' and now + ttl <= (untilOf(key) or math.huge) then return 0 end
      keepUntil(key, now + ttl)
      return redis.call('PEXPIRE', key, DAY)
    end,
    PEXPIRETIME = function(key) return left(key, untilOf(key)) end,
    PTTL = function(key) return left(key, untilOf(key) and untilOf(key) - now) end,
    DEL = function(key)
      redis.call('DEL', key .. ':until')
      return redis.call('DEL', key)
    end,
  }
  function clocked.pcall(name, ...) return (own[name] or function(...) return redis.pcall(name, ...) end)(...) end
  function clocked.call(name, ...)
    if not own[name] then return redis.call(name, ...) end
    local reply = own[name](...)
    if type(reply) == 'table' and reply.err then error(reply.err, 0) end
    return reply
  end
  for _, key in ipairs(KEYS) do
    local kept = untilOf(key)
    if kept and (kept <= now or redis.call('EXISTS', key) == 0) then own.DEL(key) end
  end
end
`

interface ShardSubscriber {
  ssubscribe(channel: string): Promise<unknown>
  sunsubscribe(channel: string): Promise<unknown>
}
