import { setTimeout as pause } from 'node:timers/promises'
import type { Fault } from '../fault.ts'
import { outcomeOf, sinceMs } from '../outcome.ts'

export const networkFaults: readonly Fault[] = [
  {
    id: 'lost-reply',
    title: 'A reply is lost',
    story:
      'The server carries out the request for a free key. The connection breaks before the reply comes back, and the next connection works.',
    expected: 'The caller gets the key, since nobody else asked for it.',
    kinds: ['redis', 'etcd'],
    async run({ proxies: [proxy], open, openAside }) {
      const client = await open(4000)
      await (await client.acquire('warm', 1000))?.release()
      const [lost, { held, what }] = await Promise.all([
        proxy?.loseNextReply('contested'),
        outcomeOf(() => client.acquire('contested', 1000)),
      ])
      void lost
      if (held !== null) return { isKept: true, what }
      const startedAt = performance.now()
      const other = await openAside(4000)
      const next = await other.acquire('contested', 15_000)
      const free = next === null ? 'is locked 15 s later' : `is free ${sinceMs(startedAt)} later`
      return { isKept: false, what: `${what}; the key ${free}` }
    },
  },
  {
    id: 'late-reply',
    title: 'A reply comes when the time is over',
    story: 'Each reply takes longer than the ttl. The first try of a caller is over before it knows of it.',
    expected: 'No lock is returned whose time is over, unless it says so at once.',
    kinds: ['redis', 'redlock'],
    async run({ proxies, open }) {
      const client = await open(500)
      await (await client.acquire('warm', 2000))?.release()
      for (const proxy of proxies) proxy.delay({ replyMs: 700 })
      const { held, what } = await outcomeOf(() => client.acquire('contested', 1500))
      if (held === null) return { isKept: true, what }
      // A library that renews may have got a later reply by now: the caller sees what it says at this moment.
      return held.lost?.aborted === true
        ? { isKept: true, what: `${what}, and says that it is lost` }
        : { isKept: false, what: `${what}, as a lock with a ttl of 500 ms` }
    },
  },
  {
    id: 'outage',
    title: 'The server is away for a while',
    story: 'The server refuses connections for four times the ttl while a key is held.',
    expected: 'The program goes on: no unhandled rejection ends the process.',
    kinds: ['redis', 'redlock', 'etcd'],
    async run({ proxies, open }) {
      const client = await open(1000)
      await client.acquire('contested', 1000)
      for (const proxy of proxies) proxy.refuse()
      await pause(4000)
      return { isKept: true, what: 'went on' }
    },
  },
  {
    id: 'process-ends',
    title: 'The program is done',
    story: 'A key is taken with the helper for work under a lock, and given back. The client is closed.',
    expected: 'Nothing keeps the process alive.',
    kinds: ['redis', 'redlock', 'etcd', 'memory'],
    async run({ open }) {
      const client = await open(2000)
      const hold = client.hold
      if (hold === undefined) {
        const held = await client.acquire('contested', 1000)
        await pause(1500)
        await held?.release()
      } else {
        await hold('contested', () => pause(1500))
      }
      await client.close()
      return { isKept: true, what: 'the process ends' }
    },
  },
]
