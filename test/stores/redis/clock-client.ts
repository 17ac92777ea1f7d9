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
    duplicate: (override) => withClock(new Redis(url, { ...override })),
    async setTime(ms) {
      await clock.mset('clock:s', Math.floor(ms / 1000), 'clock:us', (ms % 1000) * 1000)
    },
    call: () => undefined,
  }
}

function withClock(redis: Redis): IoredisConnection {
  return {
    status: 'wait',
    call(command, args) {
      if (command === 'EVALSHA') return Promise.reject(new Error('NOSCRIPT'))
      if (command !== 'EVAL') return redis.call(command, args)
      const [text = '', ...rest] = args
      if (!text.includes(ASK)) throw new Error(`Expected a script that says ${ASK}, got ${text}`)
      return redis.call(command, [text.replaceAll(ASK, ANSWER), ...rest])
    },
    on: (event, listener) => redis.on(event, listener),
    subscribe: (channel) => redis.subscribe(channel),
    disconnect: () => redis.disconnect(),
  }
}

const ASK = "redis.call('TIME')"
const ANSWER = "redis.call('MGET', 'clock:s', 'clock:us')"
