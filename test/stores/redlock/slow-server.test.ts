import { setTimeout as pause } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { RedlockStore } from '../../../src/stores/redlock/redlock-store.ts'
import { until } from '../../servers/until.ts'
import { ticket } from '../tickets.ts'
import { startMasters, votedFence } from './masters.ts'
import { type SteeredLink, steeredLink } from './steered-link.ts'

test('servers that work through a long row of requests are slow, and not silent', async () => {
  await using masters = await startMasters(3)
  const links = masters.urls.map((url) => {
    const steered = steeredLink(url)
    let lastReply: Promise<unknown> = Promise.resolve()
    // The server sends one reply every 50 ms, so the last one comes later than any server may be silent (2 s).
    steered.onReply = async () => {
      lastReply = lastReply.then(() => pause(50))
      await lastReply
    }
    return steered.link
  })
  const store = new RedlockStore(links, { prefix: 'holdfast:', fences: true, maxTtlMs: 600_000 })
  const answers = await Promise.all(
    Array.from({ length: 60 }, (_, index) => store.acquire(ticket({ key: `k${index}` }))),
  )
  expect(new Set(answers.map(({ tag }) => tag))).toEqual(new Set(['held']))
  await store.close()
})

test('a try that is refused leaves no vote on a server that answers after the others', async () => {
  await using masters = await startMasters(5)
  const linksOf = (steer: (link: SteeredLink, index: number) => void) =>
    masters.urls.map((url, index) => {
      const steered = steeredLink(url)
      steer(steered, index)
      return steered.link
    })
  let areAway = true
  const holding = linksOf((link, index) => {
    link.onRequest = () => {
      if (areAway && (index === 0 || index === 4)) throw new Error('away')
    }
  })
  let isSlow = false
  const trying = linksOf((link, index) => {
    link.onReply = () => (isSlow && index === 4 ? pause(100) : undefined)
  })
  const options = { prefix: 'holdfast:', fences: true, maxTtlMs: 600_000 }
  const [holder, other] = [new RedlockStore(holding, options), new RedlockStore(trying, options)]
  areAway = false
  await masters.meet(holder, other)
  areAway = true
  expect(await holder.acquire(ticket())).toMatchObject({ tag: 'held' })
  isSlow = true
  const mine = ticket({ patienceMs: 0, ttlMs: 60_000 })
  expect(await other.acquire(mine)).toMatchObject({ tag: 'busy' })
  await until(
    'no server has its vote',
    async () => {
      const fences = await Promise.all(masters.servers.map((server) => votedFence(server, mine)))
      return fences.every((fence) => fence === undefined)
    },
    { withinMs: 5000 },
  )
  await holder.close()
  await other.close()
})
