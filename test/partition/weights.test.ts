import { expect, test } from 'vitest'
import type { Ticket } from '../../src/contract/store.ts'
import { StoreError } from '../../src/index.ts'
import { ScriptedStore } from '../engine/scripted-store.ts'
import { until } from '../servers/until.ts'
import { Fleet } from './fleet.ts'

/** Requests of members to be in the group, which the test refuses or holds up. */
class MemberNetwork extends ScriptedStore {
  asked = 0
  refuses = false
  #open: Promise<void> = Promise.resolve()
  goOn: () => void = () => {}

  holdUp(): void {
    this.asked = 0
    this.#open = new Promise((resolve) => {
      this.goOn = resolve
    })
  }

  override async acquire(ticket: Ticket) {
    if (!ticket.key.endsWith('#members')) return super.acquire(ticket)
    this.asked += 1
    await this.#open
    if (this.refuses) throw new StoreError('store-refused', 'a test')
    return super.acquire(ticket)
  }
}

async function evictMembers({ locks: [locks] }: Fleet): Promise<void> {
  for await (const { key } of locks?.inspect({ prefix: 'fleet#' }) ?? []) {
    if (key.endsWith('#members')) await locks?.evictAll(key, { reason: 'a test' })
  }
}

test('a weight that the others were not told is an error of each call that has set it', async () => {
  const fleet = new Fleet(2)
  const network = new MemberNetwork(fleet.store)
  const a = fleet.add('a', {}, {}, network)
  await fleet.settled([2])
  await until('it has told its claims', async () => (await a.members())[0]?.keys.length === 2)
  network.refuses = true
  network.holdUp()
  const calls = Promise.allSettled([a.setWeight(3), a.setWeight(3)])
  await until('the store is asked', () => network.asked === 1)
  network.goOn()
  const reason = { code: 'store-refused' }
  expect(await calls).toMatchObject([{ reason }, { reason }])
  network.refuses = false
  await a.setWeight(3)
  expect((await a.members()).map(({ weight }) => weight)).toEqual([3])
})

test('a weight that is set as a membership is lost is known when setWeight resolves', async () => {
  const fleet = new Fleet(2)
  const network = new MemberNetwork(fleet.store)
  const a = fleet.add('a', {}, {}, network)
  await fleet.settled([2])
  await until('it has told its claims', async () => (await a.members())[0]?.keys.length === 2)
  network.holdUp()
  const known: number[] = []
  const set = (weight: number) => a.setWeight(weight).then(() => known.push(weight))
  const early = set(5)
  await until('it tells its weight', () => network.asked === 1)
  await evictMembers(fleet)
  await until('its membership is lost', () => fleet.errors.length === 1)
  const late = set(7)
  await until('it joins again', () => network.asked === 2)
  expect(known).toEqual([])
  network.goOn()
  await Promise.all([early, late])
  expect((await a.members()).map(({ weight }) => weight)).toEqual([7])
})

test('a weight that is set as a membership is lost is not waited for once the partition is stopped', async () => {
  const fleet = new Fleet(2)
  const network = new MemberNetwork(fleet.store)
  const a = fleet.add('a', {}, {}, network)
  await fleet.settled([2])
  network.holdUp()
  await evictMembers(fleet)
  await until('its membership is lost', () => fleet.errors.length === 1)
  const set = a.setWeight(3)
  await fleet.remove('a')
  await set
  expect(network.asked).toBeLessThanOrEqual(1)
})
