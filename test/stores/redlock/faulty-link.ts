import { Redis } from 'ioredis'
import type { RawConnection, RedisLink } from '../../../src/stores/redis/server/client-link.ts'
import { ioredisLink } from '../../../src/stores/redis/server/ioredis.ts'
import type { Random } from '../../../src/testing/random.ts'

export interface FaultyOptions {
  readonly random: Random
  /** How long a command may lie about before it is sent: others overtake it. */
  readonly delayMs: number
  /** The part of the commands that are never sent. */
  readonly lost: number
  /** The part of the commands whose answer is lost. */
  readonly unanswered: number
  /** What the errors begin with. Of `OOM` nobody concludes that the server as a whole is away. */
  readonly code: 'OOM' | 'NOREPLICAS'
}

/** A way to a real server on which commands overtake one another and get lost, as do answers. */
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
