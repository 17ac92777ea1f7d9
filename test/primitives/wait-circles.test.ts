import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { Store } from '../../src/contract/store.ts'
import { createLocks } from '../../src/index.ts'
import type { Locks } from '../../src/primitives/locks.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { sqliteStore } from '../../src/stores/sqlite/index.ts'
import { errorOf, outcomeOf, scene } from '../engine/scene.ts'
import { Letter, ScriptedStore } from '../engine/scripted-store.ts'

type Take = (work: () => Promise<unknown>) => Promise<unknown>

/** A callback that runs under its lock, and does nothing until the test says what comes next. */
interface Scope {
  /** What the call for the lock resolves with: what `goOn` was given. */
  readonly done: Promise<unknown>
  /** Makes this call inside the callback, as its last step. */
  goOn(next: () => Promise<unknown>): void
}

async function inside(take: Take): Promise<Scope> {
  let go: (next: () => Promise<unknown>) => void = () => {}
  const gate = new Promise<() => Promise<unknown>>((resolve) => {
    go = resolve
  })
  let begin: () => void = () => {}
  const begun = new Promise<void>((resolve) => {
    begin = resolve
  })
  const done = take(async () => {
    begin()
    const next = await gate
    return next()
  })
  done.catch(() => {})
  await Promise.race([begun, done])
  return { done, goOn: go }
}

async function untilQueued(locks: Locks, key: string, count: number): Promise<void> {
  while (((await locks.peek(key))?.queue.length ?? 0) !== count) await new Promise((go) => setTimeout(go, 1))
}

const stores: Record<string, () => Promise<Store>> = {
  memory: async () => memoryStore(),
  'a store that answers later': async () => new ScriptedStore(memoryStore()),
  SQLite: async () => {
    const folder = await mkdtemp(join(tmpdir(), 'holdfast-'))
    onTestFinished(() => rm(folder, { recursive: true }))
    return sqliteStore(join(folder, 'locks.db'))
  },
}

async function open(name: string): Promise<{ readonly locks: Locks; readonly others: Locks }> {
  const store = (await stores[name]?.()) as Store
  const [locks, others] = [createLocks(store), createLocks(store)]
  onTestFinished(async () => {
    for await (const room of locks.inspect()) expect(room).toBeUndefined()
    await locks.close()
    await others.close()
  })
  return { locks, others }
}

describe.each(Object.keys(stores))('in %s, a circle is told', (name) => {
  test('if a reader waits behind a writer that another reader of the circle holds up', async () => {
    const { locks } = await open(name)
    const x = locks.readWrite('x')
    const reader = await inside((work) => x.read(work))
    const writer = await inside((work) => locks.withLock('y', work))
    writer.goOn(() => x.write(() => 'written'))
    await untilQueued(locks, 'x', 1)
    const holder = await inside((work) => locks.withLock('z', work))
    holder.goOn(() => x.read(() => 'read'))
    await untilQueued(locks, 'x', 2)
    reader.goOn(() => locks.withLock('z', () => 'never'))
    const error = await errorOf(reader.done)
    expect(error).toMatchObject({ code: 'deadlock', key: 'z' })
    expect(error.message).toContain('one holds "x" and waits for "z"')
    expect(error.message).toContain('one holds "z" and waits for "x" behind another call')
    expect(await Promise.all([writer.done, holder.done])).toEqual(['written', 'read'])
  })

  test('if the writer is in no callback, and the reader behind it comes last', async () => {
    const { locks } = await open(name)
    const x = locks.readWrite('x')
    const reader = await inside((work) => x.read(work))
    const holder = await inside((work) => locks.withLock('z', work))
    reader.goOn(() => locks.withLock('z', () => 'both'))
    await untilQueued(locks, 'z', 1)
    const writer = x.write(() => 'written')
    await untilQueued(locks, 'x', 1)
    holder.goOn(() => x.read(() => 'never'))
    expect(await errorOf(holder.done)).toMatchObject({ code: 'deadlock', key: 'x' })
    expect(await Promise.all([reader.done, writer])).toEqual(['both', 'written'])
  })

  test('if a call for many permits stands in between', async () => {
    const { locks } = await open(name)
    const pool = locks.semaphore('pool', 3)
    const one = await inside((work) => pool.withPermits(work))
    const wide = pool.withPermits({ units: 3 }, () => 'wide')
    await untilQueued(locks, 'pool', 1)
    const holder = await inside((work) => locks.withLock('z', work))
    holder.goOn(() => pool.withPermits(() => 'narrow'))
    await untilQueued(locks, 'pool', 2)
    one.goOn(() => locks.withLock('z', () => 'never'))
    expect(await errorOf(one.done)).toMatchObject({ code: 'deadlock', key: 'z' })
    expect(await Promise.all([holder.done, wide])).toEqual(['narrow', 'wide'])
  })

  test('if no holder of a semaphore is in the way alone, but all of them together', async () => {
    const { locks } = await open(name)
    const pool = locks.semaphore('pool', 3)
    const one = await inside((work) => pool.withPermits(work))
    const two = await inside((work) => pool.withPermits(work))
    const wide = await inside((work) => locks.withLock('z', work))
    wide.goOn(() => pool.withPermits({ units: 2 }, () => 'wide'))
    await untilQueued(locks, 'pool', 1)
    one.goOn(() => locks.withLock('z', () => 'one'))
    await untilQueued(locks, 'z', 1)
    // When the other holder ends, two of three permits are free. So the first wait is not in vain, and this one would be.
    two.goOn(() => locks.withLock('z', () => 'never'))
    expect(await errorOf(two.done)).toMatchObject({ code: 'deadlock', key: 'z' })
    expect(await Promise.all([wide.done, one.done])).toEqual(['wide', 'one'])
  })

  test('if all holders of a pool wait for the one who waits for the pool', async () => {
    const { locks } = await open(name)
    const pool = locks.semaphore('pool', 2)
    const one = await inside((work) => pool.withPermits(work))
    const two = await inside((work) => pool.withPermits(work))
    const third = await inside((work) => locks.withLock('z', work))
    third.goOn(() => pool.withPermits(() => 'third'))
    await untilQueued(locks, 'pool', 1)
    one.goOn(() => locks.withLock('z', () => 'one'))
    await untilQueued(locks, 'z', 1)
    two.goOn(() => locks.withLock('z', () => 'never'))
    const error = await errorOf(two.done)
    expect(error).toMatchObject({ code: 'deadlock', key: 'z' })
    expect(error.message).toContain('one holds "pool" and waits for "z"')
    expect(error.message).toContain('one holds "z" and waits for "pool"')
    expect(await Promise.all([one.done, third.done])).toEqual(['one', 'third'])
  })

  test('if two `Locks` objects share the store', async () => {
    const { locks, others } = await open(name)
    const one = await inside((work) => locks.withLock('a', work))
    const two = await inside((work) => others.withLock('b', work))
    one.goOn(() => locks.withLock('b', () => 'both'))
    await untilQueued(locks, 'b', 1)
    two.goOn(() => others.withLock('a', () => 'never'))
    expect(await errorOf(two.done)).toMatchObject({ code: 'deadlock', key: 'a' })
    expect(await one.done).toBe('both')
  })

  test('if the context holds the key by another `Locks` object on the store', async () => {
    const { locks, others } = await open(name)
    const error = await errorOf(locks.withLock('k', () => others.withLock('k', () => 'never')))
    expect(error).toMatchObject({ code: 'deadlock', key: 'k' })
    expect(error.message).toContain('holds "k" already, by another `Locks` object')
    expect(await others.withLock('k', () => 'free')).toBe('free')
  })
})

describe('no false alarm', () => {
  /** A reader of x, and a scope under z that waits to read x behind a writer of another process. */
  async function aroundForeignWriter(before: (locks: Locks) => void = () => {}) {
    const { clock, locks, other, store } = scene()
    const x = locks.readWrite('x')
    const reader = await inside((work) => x.read(work))
    before(locks)
    await clock.advance(1)
    const foreign = new AbortController()
    const writer = errorOf(other.locks.readWrite('x').acquireWrite({ signal: foreign.signal }))
    await clock.advance(1)
    const holder = await inside((work) => locks.withLock('z', work))
    const leaves = async () => {
      foreign.abort()
      await writer
    }
    return { clock, locks, store, x, reader, holder, leaves }
  }

  async function goesOn({ clock, reader, holder, leaves }: Awaited<ReturnType<typeof aroundForeignWriter>>) {
    expect(await outcomeOf(Promise.race([reader.done, holder.done]))).toBe('pending')
    await leaves()
    expect(await clock.until(Promise.all([reader.done, holder.done]), { withinMs: 5000 })).toEqual([
      'reader',
      'holder',
    ])
  }

  test('if a writer of another process stands ahead, and one of this process behind', async () => {
    const all = await aroundForeignWriter()
    const { clock, locks, x, reader, holder } = all
    holder.goOn(() => x.read(() => 'holder'))
    await clock.advance(1)
    const late = x.write(() => 'late')
    await clock.advance(1)
    reader.goOn(() => locks.withLock('z', () => 'reader'))
    await goesOn(all)
    expect(await clock.until(late)).toBe('late')
  })

  test('if the writer ahead has given up', async () => {
    const controller = new AbortController()
    const all = await aroundForeignWriter((locks) => {
      void errorOf(locks.readWrite('x').write({ signal: controller.signal }, () => 'never'))
    })
    const { clock, locks, x, reader, holder } = all
    holder.goOn(() => x.read(() => 'holder'))
    await clock.advance(1)
    controller.abort()
    reader.goOn(() => locks.withLock('z', () => 'reader'))
    await goesOn(all)
  })

  test.each(['not been heard of for too long', 'been heard of again after that'])(
    'if the store may have dropped the writer ahead, because it has %s',
    async (how) => {
      const controller = new AbortController()
      const all = await aroundForeignWriter((locks) => {
        void errorOf(locks.readWrite('x').write({ signal: controller.signal }, () => 'never'))
      })
      const { clock, locks, x, reader, holder } = all
      holder.goOn(() => x.read(() => 'holder'))
      await clock.advance(1)
      clock.block(3000)
      // Its place may be a new one.
      if (how.includes('again')) await clock.advance(100)
      reader.goOn(() => locks.withLock('z', () => 'reader'))
      expect(await outcomeOf(Promise.race([reader.done, holder.done]))).toBe('pending')
      controller.abort()
      await goesOn(all)
    },
  )

  test('if the writer ahead waits for less time, and so gives up first', async () => {
    const all = await aroundForeignWriter((locks) => {
      void errorOf(locks.readWrite('x').write({ wait: '400ms' }, () => 'never'))
    })
    const { clock, locks, x, reader, holder } = all
    holder.goOn(() => x.read(() => 'holder'))
    await clock.advance(1)
    reader.goOn(() => locks.withLock('z', () => 'reader'))
    await clock.advance(100)
    expect(await outcomeOf(Promise.race([reader.done, holder.done]))).toBe('pending')
    await clock.advance(500)
    await goesOn(all)
  })

  test('if it is not known which of the two was queued first', async () => {
    const all = await aroundForeignWriter()
    const { clock, locks, store, x, reader, holder } = all
    const [first, second] = [new Letter(), new Letter()]
    store.next('acquire', first, second)
    const controller = new AbortController()
    void errorOf(x.write({ signal: controller.signal }, () => 'never'))
    holder.goOn(() => x.read(() => 'holder'))
    await clock.advance(1)
    second.arrive()
    first.arrive().reply()
    await clock.advance(1)
    second.reply()
    await clock.advance(1)
    reader.goOn(() => locks.withLock('z', () => 'reader'))
    await clock.advance(100)
    await goesOn({
      ...all,
      leaves: async () => {
        await all.leaves()
        controller.abort()
      },
    })
  })

  test('if one of several holders is in no callback, or belongs to another process', async () => {
    const { clock, locks, other } = scene()
    const pool = locks.semaphore('pool', 3)
    const foreign = await other.locks.semaphore('pool', 3).acquire()
    const lease = await pool.acquire()
    const one = await inside((work) => pool.withPermits(work))
    const two = await inside((work) => locks.withLock('z', work))
    two.goOn(() => pool.withPermits(() => 'two'))
    await clock.advance(1)
    one.goOn(() => locks.withLock('z', () => 'one'))
    await clock.advance(100)
    expect(await outcomeOf(Promise.race([one.done, two.done]))).toBe('pending')
    await foreign.release()
    expect(await clock.until(Promise.all([one.done, two.done]))).toEqual(['one', 'two'])
    await lease.release()
  })

  test('if one of several holders still works', async () => {
    const { clock, locks } = scene()
    const pool = locks.semaphore('pool', 2)
    const busy = await inside((work) => pool.withPermits(work))
    const one = await inside((work) => pool.withPermits(work))
    const two = await inside((work) => locks.withLock('z', work))
    two.goOn(() => pool.withPermits(() => 'two'))
    await clock.advance(1)
    one.goOn(() => locks.withLock('z', () => 'one'))
    await clock.advance(100)
    expect(await outcomeOf(Promise.race([one.done, two.done]))).toBe('pending')
    busy.goOn(async () => 'busy')
    expect(await clock.until(Promise.all([one.done, two.done]))).toEqual(['one', 'two'])
  })

  test('if two callbacks run under one lease, whose permits count once', async () => {
    const { clock, locks, other } = scene()
    const pool = locks.semaphore('pool', 3)
    const foreign = await other.locks.semaphore('pool', 3).acquire()
    const one = await inside((work) => pool.withPermits(() => pool.withPermits({ reentrant: true }, work)))
    const two = await inside((work) => locks.withLock('z', work))
    two.goOn(() => pool.withPermits({ units: 2 }, () => 'two'))
    await clock.advance(1)
    one.goOn(() => locks.withLock('z', () => 'one'))
    await clock.advance(100)
    expect(await outcomeOf(Promise.race([one.done, two.done]))).toBe('pending')
    await foreign.release()
    expect(await clock.until(Promise.all([one.done, two.done]))).toEqual(['one', 'two'])
  })

  test('if a call waits for a key of the circle, and is no part of it', async () => {
    const { clock, locks } = scene()
    const one = await inside((work) => locks.withLock('a', work))
    const two = await inside((work) => locks.withLock('b', work))
    one.goOn(() => locks.withLock('b', () => 'one'))
    await clock.advance(1)
    const aside = locks.withLock('c', () => locks.withLock('a', () => 'aside'))
    await clock.advance(1)
    two.goOn(() => locks.withLock('a', () => 'never'))
    expect(await errorOf(two.done)).toMatchObject({ code: 'deadlock' })
    expect(await clock.until(Promise.all([one.done, aside]))).toEqual(['one', 'aside'])
  })
})
