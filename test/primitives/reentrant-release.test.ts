import { describe, expect, test } from 'vitest'
import { settled } from '../engine/fake-clock.ts'
import { errorOf, realScene, scene } from '../engine/scene.ts'
import { Letter } from '../engine/scripted-store.ts'
import { campaign, Office } from './office.ts'

const reentrant = true

/** A promise that the test resolves. */
function gate() {
  let open: () => void = () => {}
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  return { open, opened }
}

/** Counts how many run at the same time. */
class Inside {
  now = 0
  most = 0

  readonly work = async (): Promise<void> => {
    this.now += 1
    this.most = Math.max(this.most, this.now)
    for (let turn = 0; turn < 5; turn += 1) await settled()
    this.now -= 1
  }
}

describe('re-entrant work that nobody awaits', () => {
  test.each(Array.from({ length: 12 }, (_, turns) => turns))(
    'runs alone if it begins %i microtasks after the one before it has ended',
    async (turns) => {
      const { locks } = realScene()
      const inside = new Inside()
      const { open, opened } = gate()
      let late: Promise<void> | undefined
      const outer = locks.withLock('k', () => {
        void locks.withLock('k', { reentrant }, () => opened)
        late = (async () => {
          await opened
          for (let turn = 0; turn < turns; turn += 1) await null
          await locks.withLock('k', { reentrant }, inside.work)
        })()
      })
      const other = locks.withLock('k', inside.work)
      await settled()
      open()
      await Promise.all([outer, other, late])
      expect(inside.most).toBe(1)
    },
  )

  test('keeps all keys of a set if it begins on one key while another one is awaited', async () => {
    const { locks } = realScene()
    const inside = new Inside()
    const [last, begin] = [gate(), gate()]
    let late: Promise<void> | undefined
    const outer = locks.withLocks(['a', 'b'], () => {
      void locks.withLock('b', { reentrant }, () => last.opened)
      late = begin.opened.then(() => locks.withLock('a', { reentrant }, inside.work))
    })
    await settled()
    begin.open()
    await settled()
    const other = locks.withLock('a', inside.work)
    last.open()
    await Promise.all([outer, other, late])
    expect(inside.most).toBe(1)
  })

  test('rejects if the outer work has released the lease under it', async () => {
    const { locks } = realScene()
    const { open, opened } = gate()
    let inner: Promise<unknown> | undefined
    const outer = locks.withLock('k', async (lease) => {
      inner = errorOf(locks.withLock('k', { reentrant }, () => opened))
      await lease.release()
      open()
    })
    await outer
    expect(await inner).toMatchObject({ code: 'lease-lost', reason: 'released' })
  })
})

describe('re-entrant work of a leader that nobody awaits', () => {
  test('keeps the leadership after the work has returned, also if it begins just before the release', async () => {
    const { locks, store, clock } = scene()
    const inside = new Inside()
    const election = locks.election('k')
    const { open, opened } = gate()
    const late: Promise<void>[] = []
    const run = election.campaign({ priority: 1 }, () => {
      late.push(locks.withLock('k', { reentrant }, inside.work))
      late.push(opened.then(() => locks.withLock('k', { reentrant }, inside.work)))
    })
    await settled()
    // The first work has ended, and the leader asks who waits.
    await clock.untilTrue(() => store.count('inspect') === 1)
    const letter = new Letter()
    store.next('inspect', letter)
    await clock.untilTrue(() => store.count('inspect') === 2)
    letter.arrive()
    open()
    await settled()
    const other = locks.withLock('k', inside.work)
    letter.reply()
    await clock.until(Promise.all([run, other, ...late]))
    expect(inside.most).toBe(1)
  })

  test('takes no part in the grace once all work has settled, however long the store takes to say who waits', async () => {
    const { locks, store, clock } = scene()
    const ending = new AbortController()
    let lost: AbortSignal | undefined
    const { open, opened } = gate()
    const run = locks
      .election('k')
      .campaign({ priority: 1, grace: 0, ttl: '5s', signal: ending.signal }, (leadership) => {
        lost = leadership.lost
        return opened
      })
    await clock.untilTrue(() => store.count('inspect') === 1)
    const letter = new Letter()
    store.next('inspect', letter)
    open()
    await clock.untilTrue(() => store.count('inspect') === 2)
    letter.arrive()
    ending.abort(new Error('enough'))
    await clock.advance(100)
    expect(lost?.aborted).toBe(false)
    letter.reply()
    await clock.until(run)
    expect(await clock.until(locks.tryWithLock('k', () => 'free'))).toEqual({ ran: true, value: 'free' })
  })

  test('loses it when `grace` is over, and rejects', async () => {
    const { locks, other, clock } = scene()
    const { open, opened } = gate()
    const election = locks.election('k')
    let inner: Promise<unknown> | undefined
    let lost: AbortSignal | undefined
    const ending = new AbortController()
    const run = election.campaign({ grace: '1s', ttl: '5s', signal: ending.signal }, (leadership) => {
      lost = leadership.lost
      inner = errorOf(locks.withLock('k', { reentrant }, () => opened))
    })
    const next = new Office()
    const rival = campaign(other.locks.election('k'), next)
    await clock.advance(60_000)
    expect(next.inside).toBe(0)
    await other.locks.election('k').requestStepDown({ reason: 'test' })
    await clock.untilTrue(() => lost?.aborted === true)
    await clock.untilTrue(() => next.inside === 1)
    expect(election.isHealthy({ tolerance: 0 })).toBe(false)
    open()
    expect(await inner).toMatchObject({ code: 'lease-lost' })
    // The inner work was part of the term, so the campaign goes on.
    ending.abort(new Error('enough'))
    await expect(clock.until(run)).rejects.toThrow('enough')
    rival.end()
    await clock.advance(60_000)
  })
})
