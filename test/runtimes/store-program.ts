// The conformance suite of a store, on the runtime that runs this program: store-program.ts SUBJECT SHARES SHARE [URL or folder].
// Of so many shares of the cases it plays one.
import { join } from 'node:path'
import { isHoldfastError } from '../../src/index.ts'
import { etcdStore } from '../../src/stores/etcd/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { postgresStore } from '../../src/stores/postgres/index.ts'
import { redisStore } from '../../src/stores/redis/index.ts'
import { sqliteStore } from '../../src/stores/sqlite/index.ts'
import { TooSlow } from '../../src/testing/conformance-scene.ts'
import { type ConformanceCase, type ConformanceSubject, storeConformance } from '../../src/testing/index.ts'
import { clients as postgresClients } from '../stores/postgres/clients.ts'
import { clients as redisClients } from '../stores/redis/clients.ts'

/** What the program prints, as JSON. */
export interface ConformanceReport {
  readonly passed: number
  readonly failed: readonly string[]
}

/** So many cases at a time. Most of their time is waiting for something to expire. */
const AT_ONCE = 4

const [name = '', shares = '', share = '', place = ''] = process.argv.slice(2)
const waiting = storeConformance(subjectOf(name)).filter((_, at) => at % Number(shares) === Number(share))
/** Cases for which the machine, or the server on it, was too slow beside other cases. They run again alone. */
let slow: { readonly again: ConformanceCase; readonly error: unknown }[] = []
const failed: string[] = []
let passed = 0

// The connections of a store keep no process alive; that is the engine's part.
const alive = setInterval(() => {}, 60_000)
await Promise.all(Array.from({ length: AT_ONCE }, work))
waiting.push(...slow.map(({ again }) => again))
slow = []
await work()
failed.push(...slow.map(({ again, error }) => textOf(again, error)))
clearInterval(alive)
console.log(JSON.stringify({ passed, failed } satisfies ConformanceReport))

async function work(): Promise<void> {
  for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
    try {
      await next.run()
      passed += 1
    } catch (error) {
      const isTooSlow = error instanceof TooSlow || isHoldfastError(error, 'store-unavailable')
      if (isTooSlow) slow.push({ again: next, error })
      else failed.push(textOf(next, error))
    }
  }
}

function textOf({ name }: ConformanceCase, error: unknown): string {
  return `${name}: ${error instanceof Error ? error.stack : error}`
}

function subjectOf(subject: string): ConformanceSubject {
  const memory = memoryStore()
  if (subject === 'memory') return { open: () => memory, grants: true, sharesClock: true }
  if (subject === 'sqlite')
    return { open: () => sqliteStore(join(place, `${process.pid}.db`)), sharesClock: true }
  if (subject === 'etcd') return { open: () => etcdStore({ endpoints: [place] }), expiresUnasked: true }
  const [newRedis, newPostgres] = [redisClients[subject], postgresClients[subject]]
  if (newRedis !== undefined) return { open: () => redisStore(newRedis(place)), grants: true }
  if (newPostgres !== undefined) return { open: () => postgresStore(newPostgres(place)) }
  throw new Error(`Expected a store or one of its clients, got ${subject}`)
}
