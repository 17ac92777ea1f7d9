import { describe, expect, test } from 'vitest'
import { settled } from '../engine/fake-clock.ts'
import { errorOf, realScene } from '../engine/scene.ts'

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
