import cron, { type RunCoordinator } from 'node-cron'
import { describe, expect, test } from 'vitest'
import { createLocks } from '../../src/index.ts'
import { nodeCronCoordinator } from '../../src/schedule/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { errorOf } from '../engine/scene.ts'
import { until } from '../servers/until.ts'
import { Stage } from './stage.ts'

const FIRE = 'nightly-backup:2027-01-15T03:00:00.000Z'
const NEXT_FIRE = 'nightly-backup:2027-01-16T03:00:00.000Z'

describe('the coordinator for node-cron', () => {
  test('lets one instance run each fire', async () => {
    const stage = new Stage()
    const coordinators: RunCoordinator[] = ['a', 'b', 'c'].map((name) =>
      nodeCronCoordinator(stage.member(name).locks),
    )
    for (const fire of [FIRE, NEXT_FIRE]) {
      const answers = Promise.all(coordinators.map((one) => one.shouldRun(fire, 30_000)))
      expect((await stage.clock.until(answers)).filter(Boolean)).toEqual([true])
    }
  })

  test('says no to an instance whose clock is slow, long after a short run has ended', async () => {
    const stage = new Stage()
    const [fast, slow] = ['a', 'b'].map((name) => nodeCronCoordinator(stage.member(name).locks))
    expect(await fast?.shouldRun(FIRE, 1000)).toBe(true)
    await stage.clock.advance(599_000)
    expect(await slow?.shouldRun(FIRE, 1000)).toBe(false)
    await stage.clock.advance(1000)
    const keys: string[] = []
    for await (const { key } of stage.member('c').locks.inspect()) keys.push(key)
    expect(keys).toEqual([])
  })

  test('rejects when the store does not answer, which node-cron takes for a no', async () => {
    const stage = new Stage()
    const member = stage.member('a')
    const coordinator = nodeCronCoordinator(member.locks)
    member.store.always('fail')
    expect(await stage.clock.until(errorOf(coordinator.shouldRun(FIRE, 1000)))).toMatchObject({
      code: 'store-unavailable',
    })
  })

  test('accepts any lease duration that node-cron gives', async () => {
    const stage = new Stage()
    const coordinator = nodeCronCoordinator(stage.member('a').locks)
    for (const [at, ttlMs] of [Number.NaN, -1, 0, 1.5, 1e15, Number.POSITIVE_INFINITY].entries()) {
      expect(await coordinator.shouldRun(`job:${at}`, ttlMs)).toBe(true)
    }
  })

  test('node-cron itself runs each fire of a distributed task in one instance', async () => {
    const store = memoryStore()
    const clients = ['a', 'b', 'c'].map((label) => createLocks(store, { label }))
    const ran: number[] = []
    const skipped: string[] = []
    const tasks = clients.map((locks) => {
      const runCoordinator: RunCoordinator = nodeCronCoordinator(locks)
      const options = { name: 'fleet', distributed: true, runCoordinator }
      const task = cron.schedule(
        '* * * * * *',
        ({ date }) => {
          ran.push(date.getTime())
        },
        options,
      )
      task.on('execution:skipped', ({ reason }) => {
        skipped.push(String(reason))
      })
      return task
    })
    await until('three fires have run', () => ran.length >= 3)
    await Promise.all(tasks.map((task) => task.destroy()))
    // On a busy machine an instance may miss a fire, and hears nothing of it.
    await until('the others were told so', () => skipped.length > 0)
    expect(ran).toEqual([...new Set(ran)].sort())
    expect(new Set(skipped)).toEqual(new Set(['not-elected']))
    for (const locks of clients) await locks.close()
  })
})
