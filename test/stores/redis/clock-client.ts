import { Redis } from 'ioredis'
import type { IoredisClient, IoredisConnection } from '../../../src/stores/redis/index.ts'

/**
 * A client that lets the scripts of the store see a time that the test sets. It replaces the line of a script that asks
 * the server for the time, and changes nothing else. It sends no EVALSHA, because the SHA-1 of a changed script is
 * another one.
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
 * The same for the servers of a cluster. A script on a cluster may read no key that it was not given, so the time stands
 * in the script.
 */
export function clusterClockClient(now: () => number): IoredisClient & { call: unknown } {
  // A call, because TIME is asked for in a statement of its own, too.
  const answer = () => `unpack({{'${Math.floor(now() / 1000)}', '${(now() % 1000) * 1000}'}})`
  return {
    status: 'wait',
    options: {},
    duplicate: (override) => withClock(new Redis({ ...override }), answer),
    call: () => undefined,
  }
}

function withClock(redis: Redis, answer: () => string): IoredisConnection & ShardSubscriber {
  return {
    status: 'wait',
    call(command, args) {
      if (command === 'EVALSHA') return Promise.reject(new Error('NOSCRIPT'))
      if (command !== 'EVAL') return redis.call(command, args)
      const [text = '', ...rest] = args
      if (!text.includes(ASK)) throw new Error(`Expected a script that says ${ASK}, got ${text}`)
      return redis.call(command, [text.replaceAll(ASK, answer()), ...rest])
    },
    on: (event, listener) => redis.on(event, listener),
    subscribe: (channel) => redis.subscribe(channel),
    ssubscribe: (channel) => redis.ssubscribe(channel),
    sunsubscribe: (channel) => redis.sunsubscribe(channel),
    disconnect: () => redis.disconnect(),
  }
}

interface ShardSubscriber {
  ssubscribe(channel: string): Promise<unknown>
  sunsubscribe(channel: string): Promise<unknown>
}

const ASK = "redis.call('TIME')"
