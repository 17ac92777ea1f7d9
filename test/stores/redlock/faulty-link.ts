import { Redis } from 'ioredis'
import type { RawConnection, RedisLink } from '../../../src/stores/redis/server/client-link.ts'
import { ioredisLink } from '../../../src/stores/redis/server/ioredis.ts'
import type { Random } from '../../../src/testing/random.ts'

export interface FaultyOptions {
  readonly random: Random
  /** For how long a command may wait before it is sent. Others overtake it meanwhile. */
  readonly delayMs: number
  /** The part of the commands that are never sent. */
  readonly lost: number
  /** The part of the commands whose answer is lost. */
  readonly unanswered: number
  /** The code that the errors begin with. From `OOM` the store does not conclude that the whole server is away. */
  readonly code: 'OOM' | 'NOREPLICAS'
}

/** A connection to a real server. Commands overtake one another on it and get lost, and so do answers. */
export function faultyLink(url: string, options: FaultyOptions): RedisLink {
  const link = ioredisLink(new Redis(url, { lazyConnect: true }))
  return { ...link, open: (onLost) => faulty(link.open(onLost), options) }
}

function faulty(
  connection: RawConnection,
  { random, delayMs, lost, unanswered, code }: FaultyOptions,
): RawConnection {
  return {
    ...connection,
    reasonOf: (error) => connection.reasonOf(error),
    close: () => connection.close(),
    async send(command, args) {
      await new Promise((resolve) => setTimeout(resolve, random.between(0, delayMs)))
      if (random.chance(lost)) throw new Error(`${code} the test lost this command`)
      const answer = await connection.send(command, args)
      if (random.chance(unanswered)) throw new Error(`${code} the test lost this answer`)
      return answer
    },
  }
}
