import { setTimeout as pause } from 'node:timers/promises'
import type { Fault } from '../fault.ts'
import { outcomeOf, sinceMs } from '../outcome.ts'

export const quorumFaults: readonly Fault[] = [
  {
    id: 'hung-server',
    title: 'One server of three hangs',
    story: 'One of three servers keeps its connections open and answers nothing. The other two work.',
    expected: 'A free key is taken within a second.',
    kinds: ['redlock'],
    async run({ proxies, open }) {
      const client = await open(10_000)
      await (await client.acquire('warm', 2000))?.release()
      proxies[0]?.halfOpen()
      const startedAt = performance.now()
      const { held, what } = await outcomeOf(() => client.acquire('contested', 10_000))
      return { isKept: held !== null && performance.now() - startedAt < 1000, what }
    },
  },
  {
    id: 'split-vote',
    title: 'Three callers ask at the same moment, each near to another server',
    story:
      'Each caller reaches its own server first and the other two 20 ms later. Each holds the key for 10 ms.',
    expected: 'All three get the key in turn within 2 s, in each of five rounds.',
    kinds: ['redlock'],
    async run({ openNear }) {
      const clients = await Promise.all([0, 1, 2].map((server) => openNear(10_000, server)))
      for (const client of clients) await (await client.acquire('warm', 2000))?.release()
      let missed = 0
      let longestMs = 0
      for (let round = 0; round < 5; round += 1) {
        const startedAt = performance.now()
        const took = clients.map(async (client) => {
          const { held } = await outcomeOf(() => client.acquire(`contested:${round}`, 2000))
          if (held === null) missed += 1
          else longestMs = Math.max(longestMs, performance.now() - startedAt)
          await pause(10)
          await held?.release().catch(() => {})
        })
        await Promise.all(took)
      }
      const what = `${missed} of 15 got nothing; the last of the others waited for ${sinceMs(performance.now() - longestMs)}`
      return { isKept: missed === 0, what }
    },
  },
]
