import { describe, expect, test } from 'vitest'
import { nodeCronCoordinator } from '../../src/schedule/index.ts'
import { errorOf } from '../engine/scene.ts'
import { Stage } from './stage.ts'

/** As node-cron 4.4 declares it (src/coordinator/run-coordinator.ts). */
interface RunCoordinator {
  shouldRun(key: string, ttlMs: number): boolean | Promise<boolean>
  onComplete?(key: string): void | Promise<void>
}

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

  test('rejects when the store cannot be asked, which node-cron takes for a no', async () => {
    const stage = new Stage()
    const member = stage.member('a')
    const coordinator = nodeCronCoordinator(member.locks)
    member.store.always('fail')
    expect(await stage.clock.until(errorOf(coordinator.shouldRun(FIRE, 1000)))).toMatchObject({
      code: 'store-unavailable',
    })
  })

  test('takes whatever node-cron gives for a lease', async () => {
    const stage = new Stage()
    const coordinator = nodeCronCoordinator(stage.member('a').locks)
    for (const [at, ttlMs] of [Number.NaN, -1, 0, 1.5, 1e15, Number.POSITIVE_INFINITY].entries()) {
      expect(await coordinator.shouldRun(`job:${at}`, ttlMs)).toBe(true)
    }
  })
})
