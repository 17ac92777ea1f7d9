import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { connect, type Election, InvalidArgumentError } from '../../src/index.ts'
import { settled } from '../engine/fake-clock.ts'
import { errorOf, realScene, scene } from '../engine/scene.ts'
import { Letter } from '../engine/scripted-store.ts'
import { places } from '../servers/places.ts'
import { until } from '../servers/until.ts'
import { campaign, Fleet, Office } from './office.ts'

describe('a leader', () => {
  test('hands over to a candidate, and the others keep their order behind it', async () => {
    const { locks, clock } = scene()
    const { elections, offices, runs } = office(4, () => locks.election('k'))
    await clock.advance(100)
    const third = (await elections[0]?.candidates())?.find(({ value }) => value === '2')
    const handed = elections[0]?.handTo(third?.id ?? '')
    expect(await clock.until(handed ?? Promise.reject())).toBe(true)
    await clock.untilTrue(() => offices[2]?.inside === 1)
    const order = (await elections[0]?.candidates())?.map(({ value }) => value)
    expect(new Set(order)).toEqual(new Set(['0', '1', '3']))
    expect(order?.indexOf('3')).toBe(0)
    expect(offices.map(({ most }) => most)).toEqual([1, 0, 1, 0])
    // Its id is the same, wherever it waits.
    const again = (await elections[0]?.candidates())?.map(({ id }) => id)
    expect(new Set(again).size).toBe(3)
    for (const run of runs) run.end()
    await clock.advance(60_000)
  })

  test('leads on if that candidate does not wait, and so does the leader of another process', async () => {
    const { locks, other, clock } = scene()
    const { elections, offices, runs } = office(2, () => locks.election('k'))
    await clock.advance(100)
    const [next] = (await elections[0]?.candidates()) ?? []
    expect(await elections[0]?.handTo('nobody')).toBe(false)
    expect(await other.locks.election('k').handTo(next?.id ?? '')).toBe(false)
    await expect(elections[0]?.handTo(1 as never)).rejects.toThrow(InvalidArgumentError)
    expect(offices.map(({ inside }) => inside)).toEqual([1, 0])
    for (const run of runs) run.end()
    await clock.advance(60_000)
  })

  test('does not end the term of the candidate if its own work returns meanwhile', async () => {
    const { locks, store, clock } = scene()
    const election = locks.election('k')
    const { offices, runs } = office(3, () => election)
    await clock.advance(100)
    const next = (await election.candidates()).find(({ value }) => value === '1')
    const letter = new Letter()
    store.next('inspect', letter)
    const handed = errorOf(election.handTo(next?.id ?? ''))
    await settled()
    letter.arrive()
    offices[0]?.finish('done')
    await clock.untilTrue(() => offices[1]?.inside === 1)
    letter.reply()
    expect(await clock.until(handed)).toMatchObject({ code: 'lease-lost', reason: 'released' })
    await clock.advance(5000)
    expect(offices[1]?.term.signal.aborted).toBe(false)
    for (const run of runs) run.end()
    await clock.advance(60_000)
  })

  test.each(Array.from({ length: 16 }, (_, turns) => turns))(
    'hands over to that candidate or rejects, if its work returns after %i microtasks and another one has a priority',
    async (turns) => {
      const { locks } = realScene()
      const fleet = new Fleet(() => locks.election('k'))
      const yieldAfter = Number.POSITIVE_INFINITY
      for (const [name, priority] of Object.entries({ first: 10, better: 5, chosen: 1 })) {
        fleet.join(name, { priority, yieldAfter })
        await until('it leads or waits', async () => name === 'first' || (await names()).includes(name))
      }
      async function names() {
        return (await fleet.election('first').candidates()).map(({ value }) => value)
      }
      const chosen = (await fleet.election('first').candidates()).find(({ value }) => value === 'chosen')
      const handed = fleet
        .election('first')
        .handTo(chosen?.id ?? '')
        .catch((error) => error)
      for (let turn = 0; turn < turns; turn += 1) await null
      fleet.office('first').finish('done')
      await until('another one leads', () => fleet.terms().length > 1)
      const outcome = await handed
      if (outcome === true) expect(fleet.terms()).toEqual(['first', 'chosen'])
      else expect(outcome).toMatchObject({ code: 'lease-lost', reason: 'released' })
      await fleet.leaveAll()
    },
  )

  test('evicts nobody when its lease is over: that one may lead by now', async () => {
    const { locks, store, clock } = scene()
    const { elections, offices, runs } = office(3, () => locks.election('k'))
    await clock.advance(100)
    const last = (await elections[0]?.candidates())?.find(({ value }) => value === '2')
    const letter = new Letter()
    store.next('inspect', letter)
    const handed = elections[0]?.handTo(last?.id ?? '')
    await settled()
    letter.arrive()
    clock.block(40_000)
    letter.reply()
    await expect(clock.until(handed ?? Promise.reject())).rejects.toThrow()
    expect(
      store.sent.filter((sent) => (sent as { key?: string }).key === 'k' && sent.verb === 'evict'),
    ).toEqual([])
    await clock.untilTrue(() => offices.some(({ inside }) => inside === 1))
    for (const run of runs) run.end()
    await clock.advance(60_000)
  })

  test('does not take a plain lock on the same key out of the queue', async () => {
    const { locks, clock } = scene()
    const first = office(1, () => locks.election('k'))
    await clock.advance(100)
    const plain = locks.acquire('k', { wait: Number.POSITIVE_INFINITY })
    await clock.advance(100)
    const second = office(2, () => locks.election('k'))
    await clock.advance(100)
    const last = (await first.elections[0]?.candidates())?.at(-1)
    expect(await clock.until(first.elections[0]?.handTo(last?.id ?? '') ?? Promise.reject())).toBe(true)
    const lease = await clock.until(plain)
    await lease.release()
    await clock.untilTrue(() => second.offices[1]?.inside === 1)
    expect(second.offices[0]?.most).toBe(0)
    for (const run of [...first.runs, ...second.runs]) run.end()
    await clock.advance(60_000)
  })
})

test.concurrent.each(Object.entries(places))(
  'on %s a leader hands over to the last of three candidates, and gives way to the best',
  async (_, open) => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-hand-to-'))
    const place = await open(folder)
    const locks = await connect(place.url)
    try {
      const { elections, offices, runs } = office(1, () => locks.election('k'))
      await until('the first one leads', () => offices[0]?.inside === 1)
      for (const count of [1, 2, 3]) {
        const more = office(1, () => locks.election('k'), count)
        offices.push(...more.offices)
        runs.push(...more.runs)
        await until('it waits', async () => (await elections[0]?.candidates())?.length === count)
      }
      const last = (await elections[0]?.candidates())?.find(({ value }) => value === '3')
      expect(await elections[0]?.handTo(last?.id ?? '')).toBe(true)
      await until('it leads', () => offices[3]?.inside === 1)
      expect(offices.map(({ most }) => most)).toEqual([1, 0, 0, 1])
      await until('the others wait', async () => (await elections[0]?.candidates())?.length === 3)
      for (const run of runs) run.end()
      await Promise.allSettled(runs.map(({ over }) => over))

      const fleet = new Fleet(() => locks.election('with priorities'))
      const waits = async (count: number) => (await fleet.election('low').candidates()).length === count
      fleet.join('low', { priority: 1, yieldAfter: 0 })
      await until('the first one leads', () => fleet.leader === 'low')
      for (const [at, name] of ['other', 'high'].entries()) {
        fleet.join(name, { priority: at + 1, yieldAfter: name === 'high' ? '1m' : 0 })
        await until('it leads or waits', async () => fleet.leader === name || (await waits(at + 1)))
      }
      await until('the best one leads', () => fleet.leader === 'high')
      await until('the others wait', () => waits(2))
      fleet.join('best', { priority: 3 })
      await until('it waits behind the others', () => waits(3))
      fleet.leave('high')
      await until('the best of those that wait leads', () => fleet.leader === 'best')
      expect(fleet.terms()).toEqual(['low', 'high', 'best'])
      await fleet.leaveAll()
    } finally {
      await locks.close()
      await place.close()
      rmSync(folder, { recursive: true, force: true })
    }
  },
)

/** Campaigns of one process, named by numbers. */
function office(count: number, election: () => Election, from = 0) {
  const offices = Array.from({ length: count }, () => new Office())
  const elections = offices.map(election)
  const runs = offices.map((one, at) =>
    campaign(elections[at] as Election, one, { value: String(from + at) }),
  )
  return { offices, elections, runs }
}
