import { Redis } from 'ioredis'
import type { CommandConnection, RedisLink } from '../../../src/stores/redis/connection.ts'
import { ioredisLink } from '../../../src/stores/redis/ioredis.ts'
import type { Random } from '../../../src/testing/random.ts'

export interface FaultyOptions {
  readonly random: Random
  /** How long a command may lie about before it is sent: others overtake it. */
  readonly delayMs: number
  /** The part of the commands that are never sent. */
  readonly lost: number
  /** The part of the commands whose answer is lost. */
  readonly unanswered: number
}

/**
 * A way to a real server on which commands overtake one another and get lost, as do answers. The errors are of a kind that
 * says nothing about the server as a whole, so that it is asked on.
 */
export function faultyLink(url: string, options: FaultyOptions): RedisLink {
  const link = ioredisLink(new Redis(url, { lazyConnect: true }))
  return { ...link, open: (onLost) => faulty(link.open(onLost), options) }
}

function faulty(
  connection: CommandConnection,
  { random, delayMs, lost, unanswered }: FaultyOptions,
): CommandConnection {
  return {
    ...connection,
    reasonOf: (error) => connection.reasonOf(error),
    close: () => connection.close(),
    async send(command, args) {
      await new Promise((resolve) => setTimeout(resolve, random.between(0, delayMs)))
      if (random.chance(lost)) throw new Error('OOM the test lost this command')
      const answer = await connection.send(command, args)
      if (random.chance(unanswered)) throw new Error('OOM the test lost this answer')
      return answer
    },
  }
}
