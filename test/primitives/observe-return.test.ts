import { expect, test } from 'vitest'
import { scene } from '../engine/scene.ts'

test.each(['election', 'group'] as const)(
  'return() ends observe() also while next() is pending: %s',
  async (kind) => {
    const { engine, locks, clock } = scene()
    const changes: AsyncGenerator = locks[kind]('k').observe()
    expect(await clock.until(changes.next())).toMatchObject({ done: false })
    const pending = changes.next()
    await clock.advance(100)
    const returned = changes.return(undefined)
    const end = { done: true, value: undefined }
    expect(await clock.until(Promise.all([pending, returned, changes.next()]))).toEqual([end, end, end])
    expect(engine.onlookers.size).toBe(0)
    await clock.advance(5000)
  },
)

test.each(['election', 'group'] as const)(
  'return() before the first next() begins nothing: %s',
  async (kind) => {
    const { locks, store } = scene()
    const changes: AsyncGenerator = locks[kind]('k').observe()
    await changes.return(undefined)
    expect(await changes.next()).toEqual({ done: true, value: undefined })
    expect(store.sent).toEqual([])
  },
)
