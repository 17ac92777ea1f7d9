// One process of a test, with its own client. It does what its parent orders over the channel, and nothing by itself.
import { appendFileSync } from 'node:fs'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { createClient } from 'redis'
import { createLocks, isHoldfastError, type Lease, type LeaseLostError } from '../../src/index.ts'
import { redisStore } from '../../src/stores/redis/index.ts'
import { FENCED_WRITE } from './fenced-register.ts'
import type { OrderMessage, Orders, ProcessMessage } from './orders.ts'

const [url = '', kind = ''] = process.argv.slice(2)
const client = kind === 'redis 5' ? await createClient({ url }).connect() : new Redis(url)
const locks = createLocks(redisStore(client as Redis), { wait: 60_000 })
const leases = new Map<string, Lease>()
let stopping = false
let competitors: Promise<unknown> = Promise.resolve()

const does: { readonly [V in keyof Orders]: (order: never) => unknown } = {
  async acquire({ lease: name, key, options }: Parameters<Orders['acquire']>[0]) {
    const lease = await locks.acquire(key, options)
    leases.set(name, lease)
    lease.signal.addEventListener('abort', () => {
      const { code, reason } = lease.signal.reason as Partial<LeaseLostError>
      tell({ tag: 'lost', lease: name, code: String(code), reason })
    })
    return { fence: lease.fence, id: lease.id }
  },
  release: ({ lease }: { lease: string }) => named(lease).release(),
  block({ lease, forMs }: Parameters<Orders['block']>[0]) {
    let timers = 0
    setTimeout(() => {
      timers += 1
    }, 1)
    block(forMs)
    try {
      named(lease).assertHeld()
      return { said: undefined, timers }
    } catch (error) {
      return { said: codeOf(error), timers }
    }
  },
  workBlocked: ({ key, options, forMs }: Parameters<Orders['workBlocked']>[0]) =>
    locks
      .withLock(key, options, () => block(forMs))
      .then(
        () => ({ said: undefined }),
        (error: unknown) => ({ said: codeOf(error) }),
      ),
  async write({ lease, register }: Parameters<Orders['write']>[0]) {
    const { fence } = named(lease)
    return { outcome: await (client as Redis).eval(FENCED_WRITE, 1, register, String(fence)) }
  },
  compete({ key, waiters, journal }: Parameters<Orders['compete']>[0]) {
    const note = (...words: unknown[]) => appendFileSync(journal, `${words.join(' ')}\n`)
    competitors = Promise.all(
      Array.from({ length: waiters }, async (_, waiter) => {
        while (!stopping) {
          await locks.withLock(key, async ({ id, fence }) => {
            note('enter', id, fence, `${process.pid}:${waiter}`)
            await nextTurn()
            note('leave', id)
          })
        }
      }),
    )
  },
  async stop() {
    stopping = true
    await competitors
  },
  async close({ abruptly }: Parameters<Orders['close']>[0]) {
    await locks.close()
    if (!abruptly) await client.quit()
    else if (client instanceof Redis) client.disconnect()
    else client.destroy()
  },
}

function block(forMs: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, forMs)
}

function named(name: string): Lease {
  const lease = leases.get(name)
  if (lease === undefined) throw new Error(`Expected a lease called ${name}`)
  return lease
}

function codeOf(error: unknown): string {
  return isHoldfastError(error) ? error.code : String(error)
}

function tell(message: ProcessMessage): void {
  process.send?.(message)
}

const abandoned = () => process.exit(1)
process.on('disconnect', abandoned)
process.on('message', async ({ number, verb, order }: OrderMessage) => {
  try {
    const reply = (await does[verb](order as never)) as never
    tell({ tag: 'reply', number, reply })
  } catch (error) {
    tell({
      tag: 'failed',
      number,
      error: error instanceof Error ? (error.stack ?? error.message) : String(error),
    })
  }
  if (verb !== 'close') return
  // Otherwise the channel alone would keep the process alive.
  process.off('disconnect', abandoned)
  process.disconnect()
})
tell({ tag: 'ready' })
