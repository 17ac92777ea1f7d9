import assert from 'node:assert/strict'
import { type Store, type Ticket, UNLIMITED } from '../contract/store.ts'
import { mayStandTogether, type Share } from '../law/law.ts'
import { type ConformanceScript, heldFence, LONG, releaseOf, type Scene } from './conformance-scene.ts'
import { type Random, seededRandom } from './random.ts'

/** Many clients at once. The cases check what the clients see, and not what `inspect` says. */
export const manyCases: readonly ConformanceScript[] = [
  {
    name: 'many tasks through several views on many keys: never two that exclude each other, and everybody is served',
    async play(scene) {
      const views = [await scene.view(), await scene.view(), await scene.view()]
      const inside = new Map<string, Set<Share>>()
      const random = seededRandom(scene.prefix)
      const served = await Promise.all(
        Array.from({ length: 36 }, (_, task) => work(scene, views[task % 3] as Store, random, inside)),
      )
      assert.deepEqual(new Set(served), new Set([ROUNDS]))
      for (const shares of inside.values()) assert.equal(shares.size, 0)
    },
  },
  {
    name: 'calls for one key that arrive at once admit one ticket and queue the others in some order',
    needs: 'exact-order',
    async play(scene) {
      const views = [await scene.view(), await scene.view(), await scene.view()]
      const tickets = Array.from({ length: 30 }, () => scene.ticket())
      const answers = await Promise.all(
        tickets.map((ticket, index) => (views[index % 3] as Store).acquire(ticket)),
      )
      assert.equal(answers.filter((answer) => answer.tag === 'held').length, 1)
      const ahead = answers.flatMap((answer) => (answer.tag === 'queued' ? [answer.ahead] : []))
      assert.deepEqual(
        ahead.sort((one, other) => one - other),
        Array.from({ length: 29 }, (_, index) => index),
      )
    },
  },
  {
    name: 'one acquire that is sent many times at once is one holder under one fence',
    async play(scene) {
      // In use two processes never send the same ticket at once. Independent servers could not order that, so one view here.
      const views = scene.exactOrder ? [await scene.view(), await scene.view()] : [await scene.view()]
      const ticket = scene.ticket({ limit: scene.several(9) })
      const answers = await Promise.all(
        Array.from({ length: 20 }, (_, index) => (views[index % views.length] as Store).acquire(ticket)),
      )
      assert.equal(new Set(answers.map(heldFence)).size, 1)
      assert.equal((await scene.holders(views[0] as Store)).length, 1)
      const releases = await Promise.all(
        [0, 1].map((at) => (views[at] ?? (views[0] as Store)).release(releaseOf(ticket))),
      )
      assert.deepEqual(releases.map(({ was }) => was).sort(), ['held', 'unknown'])
    },
  },
]

const ROUNDS = 6
const KINDS: readonly Share[] = [
  { units: 1, limit: 1 },
  { units: 1, limit: UNLIMITED },
  { units: 2, limit: 3 },
]

async function work(
  scene: Scene,
  store: Store,
  random: Random,
  inside: Map<string, Set<Share>>,
): Promise<number> {
  let served = 0
  for (let round = 0; round < ROUNDS; round += 1) {
    const key = `${scene.key}:${random.between(1, 4)}`
    const ticket = scene.ticket({ key, ...random.pick(scene.semaphores ? KINDS : KINDS.slice(0, 2)) })
    const holders = inside.get(key) ?? new Set()
    inside.set(key, holders)
    await admitted(scene, store, ticket)
    const share: Share = { units: ticket.units, limit: ticket.limit }
    holders.add(share)
    assert.ok(mayStandTogether([...holders]), `${holders.size} holders that exclude one another`)
    await new Promise((resolve) => setTimeout(resolve, random.between(0, 2)))
    holders.delete(share)
    await store.release(releaseOf(ticket))
    served += 1
  }
  return served
}

/** The simplest client there can be: it asks until it is let in. */
async function admitted(scene: Scene, store: Store, ticket: Ticket): Promise<void> {
  const giveUpAt = performance.now() + LONG
  while (performance.now() < giveUpAt) {
    const answer = await store.acquire(ticket)
    if (answer.tag === 'held') return
    assert.equal(answer.tag, 'queued')
    await new Promise((resolve) => setTimeout(resolve, 2))
  }
  throw new assert.AssertionError({ message: `Not served in ${LONG} ms: ${scene.key}` })
}
