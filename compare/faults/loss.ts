import { once } from 'node:events'
import { setTimeout as pause } from 'node:timers/promises'
import type { Fault, Seen, Stage } from '../fault.ts'
import type { Client } from '../library.ts'
import { sinceMs, within } from '../outcome.ts'

const TTL_MS = 2000

export const lossFaults: readonly Fault[] = [
  {
    id: 'silent-store',
    title: 'The store falls silent while a key is held',
    story:
      'All connections stay open, and nothing comes through any more. The lease runs out on the servers.',
    expected: 'The holder is told before somebody else can have the key: within the ttl of 2 s.',
    kinds: ['redis', 'redlock', 'etcd'],
    run: (stage) =>
      tellsOfLoss(stage, async () => {
        for (const proxy of stage.proxies) proxy.halfOpen()
      }),
  },
  {
    id: 'revoked',
    title: 'An operator takes the lease away',
    story: 'The lease is revoked on the server, which works. Everybody may take the key from now on.',
    expected: 'The holder is told within the ttl of 2 s.',
    kinds: ['etcd'],
    run: (stage) => tellsOfLoss(stage, () => stage.revokeLeases()),
  },
  {
    id: 'stale-release',
    title: 'A holder that was away gives back what is not its own any more',
    story:
      'A holder stands still, or is cut off, for longer than its ttl. Another one takes the key. The first one comes back and releases.',
    expected: 'The second holder keeps the key.',
    kinds: ['redis', 'redlock', 'memory'],
    async run(stage) {
      const first = await stage.open(1000)
      const held = await first.acquire('contested', 1000)
      for (const proxy of stage.proxies) proxy.halfOpen()
      if (stage.kind === 'memory') standStill(1500)
      const other = await stage.openAside(30_000)
      if ((await other.acquire('contested', stage.kind === 'memory' ? 300 : 15_000)) === null) {
        // In memory, a lease that can run out has done so by now. A lock without a ttl stays locked.
        if (stage.kind === 'memory') return undefined
        return { isKept: false, what: 'the second one does not get the key within 15 s' }
      }
      for (const proxy of stage.proxies) proxy.normal()
      await within(
        Promise.resolve(held?.release()).catch(() => {}),
        5000,
      )
      const third = await other.acquire('contested', 1000)
      return third === null
        ? { isKept: true, what: 'the second holder keeps it' }
        : { isKept: false, what: 'a third one takes it beside the second' }
    },
  },
  {
    id: 'hidden-error',
    title: 'The work fails, and the lock is lost as well',
    story: 'The server is away. The work under the lock throws an error of its own after the ttl.',
    expected: 'The caller gets the error of the work, or an error that has it as its cause.',
    kinds: ['redis', 'redlock', 'etcd', 'memory'],
    async run({ proxies, open }) {
      const { hold } = await open(1000)
      if (hold === undefined) return undefined
      const own = new Error('the error of the work')
      try {
        await hold('contested', async () => {
          for (const proxy of proxies) proxy.refuse()
          await pause(1500)
          throw own
        })
      } catch (error) {
        const isKept = error === own || (error as Error).cause === own
        return { isKept, what: `${(error as Error).name}: ${(error as Error).message.slice(0, 60)}` }
      }
      return { isKept: false, what: 'no error at all' }
    },
  },
  {
    id: 'clock-ahead',
    title: 'The clock of one machine is ahead',
    story: 'One client holds the only permit of a semaphore. The clock of the next one is a minute ahead.',
    expected: 'The permit is not given twice.',
    kinds: ['redis', 'memory'],
    async run({ open, openAside }) {
      const first = await open(30_000)
      const { acquireUnits } = await openAside(30_000)
      if (first.acquireUnits === undefined || acquireUnits === undefined) return undefined
      const permit = { key: 'contested', limit: 1, count: 1, waitMs: 1000 }
      await first.acquireUnits(permit)
      const now = Date.now
      Date.now = () => now() + 60_000
      const second = await acquireUnits(permit)
      return second === null
        ? { isKept: true, what: 'the second one waits' }
        : { isKept: false, what: 'the permit is given twice' }
    },
  },
]

async function tellsOfLoss({ open }: Stage, strike: () => Promise<void>): Promise<Seen> {
  const client = await open(TTL_MS)
  const { lost, ended } = await holding(client)
  // Renewals that are under way come to their end, and the next ones come through.
  await pause(TTL_MS)
  const struckAt = performance.now()
  await strike()
  if (lost === undefined) return { isKept: false, what: 'has nothing that tells' }
  const told = lost.aborted ? Promise.resolve([]) : once(lost, 'abort')
  const isTold = (await within(told, 6 * TTL_MS)) !== undefined
  const tookMs = performance.now() - struckAt
  ended()
  if (!isTold) return { isKept: false, what: `not told within ${(6 * TTL_MS) / 1000} s` }
  // Timers may be this late on a busy machine.
  return { isKept: tookMs <= TTL_MS + 100, what: `told after ${sinceMs(struckAt)}` }
}

/** Holds the key by the helper for work if there is one, since some libraries renew and tell only there. */
async function holding(client: Client): Promise<{ lost: AbortSignal | undefined; ended(): void }> {
  const work = new AbortController()
  const { hold } = client
  if (hold === undefined) {
    const held = await client.acquire('contested', 1000)
    return { lost: held?.lost, ended: () => {} }
  }
  const lost = await new Promise<AbortSignal | undefined>((resolve, reject) => {
    hold('contested', async (signal) => {
      resolve(signal)
      await once(work.signal, 'abort')
    }).catch(reject)
  })
  return { lost, ended: () => work.abort() }
}

/** The event loop does nothing meanwhile. */
function standStill(durationMs: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, durationMs)
}
