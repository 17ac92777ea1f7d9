import { setTimeout as pause } from 'node:timers/promises'
import type { Fault } from '../fault.ts'
import { within } from '../outcome.ts'

const WAITERS = 10

export const waitFaults: readonly Fault[] = [
  {
    id: 'order',
    title: 'Many wait for one key',
    story:
      'Ten callers ask for a held key, 50 ms apart. Then it is released, and each of them holds it for a moment.',
    expected: 'They get it in the order in which they asked.',
    kinds: ['redis', 'redlock', 'memory'],
    async run({ open }) {
      const client = await open(10_000)
      const first = await client.acquire('contested', 1000)
      const order: number[] = []
      const waiting = []
      for (let index = 0; index < WAITERS; index += 1) {
        waiting.push(
          client.acquire('contested', 20_000).then(async (held) => {
            if (held === null) return
            order.push(index)
            await pause(5)
            await held.release()
          }),
        )
        await pause(50)
      }
      await first?.release()
      await Promise.all(waiting)
      const isKept = order.length === WAITERS && order.every((place, index) => place === index)
      return {
        isKept,
        what: `served: ${order.join(' ')}${order.length < WAITERS ? ', the rest got nothing' : ''}`,
      }
    },
  },
  {
    id: 'busy-waiting',
    title: 'Waiting costs the server',
    story: 'Ten callers of one process wait for a key for five seconds.',
    expected: 'Fewer than one request a second for each of them.',
    kinds: ['redis', 'redlock'],
    async run({ open, openAside, countRequests }) {
      const holder = await openAside(30_000)
      await holder.acquire('contested', 1000)
      const client = await open(30_000)
      const waiting = Array.from({ length: WAITERS }, () =>
        client.acquire('contested', 8000).catch(() => null),
      )
      await pause(1000)
      const perSecond = (await countRequests(5000)) / 5
      void waiting
      return {
        isKept: perSecond < WAITERS,
        what: `${perSecond.toFixed(perSecond < 10 ? 1 : 0)} requests a second`,
      }
    },
  },
  {
    id: 'ghost-waiter',
    title: 'A waiter that has given up',
    story:
      'One permit of two is taken. A waiter wants two and gives up. Then a caller wants one, and one is free.',
    expected: 'The caller gets it at once: nobody waits before it.',
    kinds: ['redis', 'memory'],
    async run({ open }) {
      const { acquireUnits } = await open(10_000)
      if (acquireUnits === undefined) return undefined
      const permits = { key: 'contested', limit: 2 }
      await acquireUnits({ ...permits, count: 1, waitMs: 1000 })
      const gaveUp = await acquireUnits({ ...permits, count: 2, waitMs: 200 })
      const caller = await acquireUnits({ ...permits, count: 1, waitMs: 1000 })
      if (gaveUp !== null) return { isKept: false, what: 'three permits of two are taken' }
      return caller === null
        ? { isKept: false, what: 'waits behind the one that has gone' }
        : { isKept: true, what: 'gets it' }
    },
  },
  {
    id: 'opposite-order',
    title: 'Two callers take the same two keys in opposite order',
    story:
      'The keys a and b are held. One caller asks for a and b, another for b and a. Then both keys are released. This is done five times.',
    expected: 'No deadlock: all are served within 10 s.',
    kinds: ['redis', 'redlock', 'memory'],
    async run({ open }) {
      const client = await open(10_000)
      const { acquireAll } = client
      if (acquireAll === undefined) return undefined
      const take = async (keys: readonly string[]): Promise<void> => {
        const held = await acquireAll(keys)
        await held.release()
      }
      let round = 0
      const all = (async () => {
        for (; round < 5; round += 1) {
          const busy = await Promise.all([client.acquire('a', 1000), client.acquire('b', 1000)])
          const both = Promise.all([take(['a', 'b']), take(['b', 'a'])])
          await Promise.all(busy.map((held) => held?.release()))
          await both
        }
        return 'done'
      })()
      const end = await within(
        all.catch((error: Error) => error.name),
        10_000,
      )
      if (end === 'done') return { isKept: true, what: 'all are served' }
      const how = end === undefined ? 'both wait for ever' : `ends with ${end}`
      return { isKept: false, what: `round ${round + 1}: ${how}` }
    },
  },
]
