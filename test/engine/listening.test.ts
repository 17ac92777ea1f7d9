import { AsyncLocalStorage, AsyncResource } from 'node:async_hooks'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { createLocks, InvalidArgumentError, lockEvents } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { HOSTILE_VALUES } from '../base/hostile-values.ts'
import { settled } from './fake-clock.ts'
import { hear, last, story } from './hearing.ts'
import { realScene, scene } from './scene.ts'
import { Letter } from './scripted-store.ts'

const warnings: Error[] = []
const onWarning = (warning: Error) => {
  if (warning.name === 'HoldfastWarning') warnings.push(warning)
}
// The test's listener takes the place of the one that prints warnings.
const usual = process.listeners('warning')
beforeEach(() => {
  warnings.length = 0
  process.removeAllListeners('warning').on('warning', onWarning)
})
afterEach(() => {
  process.removeAllListeners('warning')
  for (const listener of usual) process.on('warning', listener)
})

describe('locks.on', () => {
  test('hears of its own locks and of no others, until it is stopped', async () => {
    const [one, other] = [realScene(), realScene()]
    const keys: string[] = []
    const stop = one.locks.on('acquired', ({ key }) => keys.push(key))
    await one.locks.withLock('a', () => {})
    await other.locks.withLock('b', () => {})
    stop()
    stop()
    await one.locks.withLock('c', () => {})
    expect(keys).toEqual(['a'])
  })

  test('calls every listener in order, also one that was added twice, and one that leaves in between', async () => {
    const { locks } = realScene()
    const calls: string[] = []
    const again = () => calls.push('again')
    const stopFirst = locks.on('acquired', () => {
      calls.push('first')
      stopFirst()
    })
    const stopAgain = locks.on('acquired', again)
    locks.on('acquired', again)
    await locks.withLock('k', () => {})
    stopAgain()
    await locks.withLock('k', () => {})
    expect(calls).toEqual(['first', 'again', 'again', 'again'])
  })

  test.each<[how: string, make: () => () => void, detail: string]>([
    ['throws', () => listenerOf(() => fail()), 'a bug in the listener'],
    ['rejects', () => listenerOf(async () => fail()), 'a bug in the listener'],
    ['throws what is no error', () => listenerOf(() => throwText()), 'a bug in the listener'],
    ['throws what cannot be shown', () => listenerOf(() => throwNothing()), 'an object (no class)'],
    ...HOSTILE_VALUES.map(([name, make]): [string, () => () => void, string] => [
      `throws ${name}`,
      () => listenerOf(() => throwMade(make)),
      '',
    ]),
  ])('is not disturbed by a listener that %s: the process is warned, once', async (_, make, detail) => {
    const { locks } = realScene()
    for (const name of lockEvents.names) locks.on(name, make())
    const stops = lockEvents.names.map((name) => lockEvents.on(name, make()))
    expect(await locks.withLock('k', () => 'done')).toBe('done')
    expect(await locks.withLock('k', () => 'again')).toBe('again')
    await settled()
    for (const stop of stops) stop()
    const events = warnings.map(({ message }) => /`(\S+)`/.exec(message)?.[1])
    const expected = ['requested', 'acquired', 'working', 'released'].flatMap((name) => [name, name])
    expect(events.sort()).toEqual(expected.sort())
    expect((warnings[0] as { detail?: string }).detail).toContain(detail)
  })

  test('refuses an event that there is not, and a listener that is none', () => {
    const { locks } = realScene()
    const wrong: unknown = 'error'
    for (const source of [locks, lockEvents]) {
      expect(() => source.on(wrong as 'lost', () => {})).toThrow(InvalidArgumentError)
      expect(() => source.on(wrong as 'lost', () => {})).toThrow(
        /^Expected `event` to be one of requested, .*, working, got "error"\.$/,
      )
      expect(() => source.on('lost', undefined as never)).toThrow(
        'Expected `listener` to be a function, got undefined.',
      )
    }
  })

  test('may take the same locks in a listener', async () => {
    const { locks } = realScene()
    const taken: boolean[] = []
    locks.on('released', ({ key }) => {
      if (key === 'k') void locks.withLock('k:after', () => void taken.push(true))
    })
    await locks.withLock('k', () => {})
    await settled()
    expect(taken).toEqual([true])
  })
})

describe('an event that a listener causes', () => {
  test('is told after all others have heard of the first, and `requested` before its call goes on', async () => {
    const { locks } = realScene()
    const told: string[] = []
    const note = (event: string) => told.push(event)
    const stop = locks.on('acquired', ({ key }) => {
      if (key !== 'k') return
      note('acquired k, first')
      void locks.withLock('inner', () => {})
      note('asked')
    })
    locks.on('requested', ({ key }) => note(`requested ${key}`))
    locks.on('acquired', ({ key }) => note(`acquired ${key}, second`))
    const stopChannel = lockEvents.on('acquired', ({ key }) => note(`acquired ${key}, channel`))
    await locks.withLock('k', () => {})
    await settled()
    stopChannel()
    stop()
    expect(told).toEqual([
      'requested k',
      'acquired k, first',
      'acquired k, second',
      'acquired k, channel',
      'requested inner',
      'asked',
      'acquired inner, second',
      'acquired inner, channel',
    ])
  })

  test('is told later if it is not about a call that begins', async () => {
    const { locks } = realScene()
    const told: string[] = []
    const lease = await locks.acquire('held')
    locks.on('acquired', () => {
      void lease.release()
      told.push('first')
    })
    locks.on('acquired', () => told.push('second'))
    locks.on('released', ({ key }) => told.push(`released ${key}`))
    await locks.withLock('k', () => {})
    expect(told).toEqual(['first', 'second', 'released held', 'released k'])
  })

  test('is told in the context of the call that a listener makes, also if that context is its own', async () => {
    const { locks } = realScene()
    const request = new AsyncLocalStorage<string>()
    const contexts: unknown[] = []
    const stop = locks.on('acquired', () => {
      stop()
      void request.run('inner', () => locks.withLock('inner', () => {}))
    })
    locks.on('requested', ({ key }) => contexts.push([key, request.getStore()]))
    await request.run('outer', () => locks.withLock('k', () => {}))
    await settled()
    expect(contexts).toEqual([
      ['k', 'outer'],
      ['inner', 'inner'],
    ])
  })

  test('is not told to a listener that was removed before', async () => {
    const { locks } = realScene()
    const told: string[] = []
    let stop = () => {}
    locks.on('acquired', () => stop())
    stop = locks.on('acquired', () => told.push('removed'))
    locks.on('acquired', () => told.push('last'))
    await locks.withLock('k', () => {})
    expect(told).toEqual(['last'])
  })
})

describe('the channels of the process', () => {
  test('carry what locks.on is told, from all locks', async () => {
    const heard: unknown[] = []
    const listener = (event: unknown) => heard.push(event)
    const channels = lockEvents.names.map((name) => `holdfast:${name}`)
    for (const channel of channels) subscribe(channel, listener)
    const own: unknown[] = []
    for (const label of ['one', 'two']) {
      const locks = createLocks(memoryStore(), { label })
      own.push(...(await heardOf(locks)))
      await locks.close()
    }
    for (const channel of channels) unsubscribe(channel, listener)
    expect(heard).toEqual(own)
    const labels = heard.map((event) => (event as { owner: { label: string } }).owner.label)
    expect([...new Set(labels)]).toEqual(['one', 'two'])
  })

  test('are heard by lockEvents.on as well, until it is stopped', async () => {
    const { locks } = realScene()
    const keys: string[] = []
    const stop = lockEvents.on('released', ({ key }) => keys.push(key))
    await locks.withLock('a', () => {})
    stop()
    stop()
    await locks.withLock('b', () => {})
    expect(keys).toEqual(['a'])
  })
})

describe('the tickets of ours beside a caller’s key', () => {
  test('of `once` are no caller’s business', async () => {
    const { locks } = memoryScene()
    const heard = hear(locks)
    await locks.once('mail:7', { remember: '50ms' }, () => 'sent')
    await locks.once('mail:7', { remember: '50ms' }, () => 'sent')
    expect(story(heard)).toBe('requested acquired working released')
    expect(new Set(heard.map(({ key }) => key))).toEqual(new Set(['mail:7']))
    await locks.close()
  })

  test('of an election are not told either, but its terms are', async () => {
    const { locks } = memoryScene()
    const heard = hear(locks)
    const election = locks.election('e')
    const campaign = election.campaign(async ({ signal }) => {
      if (heard.some(({ event }) => event === 'resigned')) return
      const asked = new Promise((resolve) => signal.addEventListener('abort', resolve))
      await election.resign()
      await asked
    })
    await campaign
    const terms = heard.filter(({ event }) => event === 'elected' || event === 'resigned')
    expect(terms.map(({ event }) => event)).toEqual(['elected', 'resigned', 'elected', 'resigned'])
    expect(terms[1]).toMatchObject({ reason: 'step-down', fence: (terms[0] as { fence: bigint }).fence })
    expect(terms[3]).toMatchObject({ reason: 'done' })
    expect(new Set(heard.map(({ key }) => key))).toEqual(new Set(['e']))
    await locks.close()
  })

  test('and a term whose work fails or whose lease is lost says so', async () => {
    const { locks } = memoryScene()
    const heard = hear(locks)
    await expect(locks.election('e').campaign(() => fail())).rejects.toThrow('a bug in the listener')
    expect(last(heard, 'resigned')).toMatchObject({ reason: 'failed' })
    let terms = 0
    await locks.election('e').campaign(async ({ signal }) => {
      terms += 1
      if (terms > 1) return
      const lost = new Promise((resolve) => signal.addEventListener('abort', resolve))
      await locks.evictAll('e', { reason: 'a test' })
      await lost
    })
    const reasons = heard.flatMap((event) => (event.event === 'resigned' ? [event.reason] : []))
    expect(reasons).toEqual(['failed', 'lost', 'done'])
    await locks.close()
  })
})

describe('the event `working`', () => {
  const storage = new AsyncLocalStorage<string>()

  test('lets a listener have callbacks run inside of a context, with their values and errors', async () => {
    const { locks } = realScene()
    locks.on('working', ({ key, around }) => around((run) => storage.run(`in ${key}`, run)))
    expect(await locks.withLock('a', () => storage.getStore())).toBe('in a')
    const later = async () => {
      await settled()
      return storage.getStore()
    }
    expect(await locks.withLock('a', later)).toBe('in a')
    expect(await locks.tryWithLock('a', () => storage.getStore())).toMatchObject({ value: 'in a' })
    expect(await locks.withLocks(['b', 'a'], () => storage.getStore())).toBe('in b')
    expect(await locks.semaphore('s', 2).withPermits(() => storage.getStore())).toBe('in s')
    expect(await locks.readWrite('r').read(() => storage.getStore())).toBe('in r')
    expect(await locks.election('e').campaign(() => storage.getStore())).toBe('in e')
    await expect(locks.withLock('a', () => fail())).rejects.toThrow('a bug in the listener')
    await expect(locks.withLock('a', async () => fail())).rejects.toThrow('a bug in the listener')
    expect(storage.getStore()).toBe(undefined)
    expect(warnings).toEqual([])
  })

  test('does not take a reentrant call out of the context that its caller has made since', async () => {
    const { locks } = realScene()
    locks.on('working', ({ key, around }) => around((run) => storage.run(`in ${key}`, run)))
    const inner = () => locks.withLock('a', { reentrant: true }, () => storage.getStore())
    expect(await locks.withLock('a', () => storage.run('deeper', inner))).toBe('deeper')
  })

  test('leaves the callback knowing what it holds, also where wrap runs it in another context', async () => {
    const { locks } = realScene()
    const elsewhere = new AsyncResource('elsewhere')
    locks.on('working', ({ around }) => around((run) => elsewhere.runInAsyncScope(run)))
    const again = (key: string) => () =>
      locks.withLock(key, { reentrant: true, wait: 500 }, () => `inside ${key}`)
    expect(await locks.withLock('a', again('a'))).toBe('inside a')
    expect(await locks.withLocks(['b', 'c'], again('c'))).toBe('inside c')
    expect(await locks.election('e').campaign(again('e'))).toBe('inside e')
  })

  test('is not told of a callback that does not run because its lease was over before', async () => {
    const { clock, store, locks } = scene()
    const heard = hear(locks)
    const letter = new Letter()
    store.next('acquire', letter)
    const done = locks.withLock('k', { ttl: 1000, renew: false }, () => 'ran')
    await clock.advance(100)
    letter.arrive().reply()
    // The event loop is blocked after the grant was taken, and before its caller has its turn.
    locks.on('acquired', () => clock.block(2000))
    await expect(clock.until(done)).rejects.toMatchObject({ code: 'lease-lost' })
    expect(story(heard)).toBe('requested acquired lost')
  })

  test.each([
    ['never runs it', () => {}],
    ['throws before', () => fail()],
    [
      'throws after',
      (run: () => void) => {
        run()
        fail()
      },
    ],
    [
      'runs it twice',
      (run: () => void) => {
        run()
        run()
      },
    ],
  ])('has the callback run once, whatever wrap does: it %s', async (_, wrap) => {
    const { locks } = realScene()
    locks.on('working', ({ around }) => around(wrap))
    let runs = 0
    expect(await locks.withLock('k', () => (runs += 1))).toBe(1)
    expect(runs).toBe(1)
    await settled()
  })

  test('has the callback run once, also where it is asked to run again from inside', async () => {
    const { locks } = realScene()
    let runAgain = () => {}
    locks.on('working', ({ around }) =>
      around((run) => {
        runAgain = run
        run()
      }),
    )
    let runs = 0
    const work = () => {
      runs += 1
      if (runs < 3) runAgain()
      return runs
    }
    expect(await locks.withLock('k', work)).toBe(1)
    runAgain()
    expect(runs).toBe(1)
  })

  test('warns once of a wrap that fails, and not at every lock', async () => {
    const { locks } = realScene()
    locks.on('working', ({ around }) => around(() => fail()))
    await locks.withLock('k', () => {})
    await locks.withLock('k', () => {})
    await settled()
    expect(warnings.length).toBeLessThanOrEqual(1)
  })
})

function fail(): never {
  throw new Error('a bug in the listener')
}

function throwText(): never {
  // biome-ignore lint/style/useThrowOnlyError: some programs do that.
  throw 'a bug in the listener'
}

function throwNothing(): never {
  throw Object.create(null)
}

function throwMade(make: () => unknown): never {
  throw make()
}

function listenerOf(listen: () => unknown): () => void {
  return listen as () => void
}

function memoryScene() {
  return { locks: createLocks(memoryStore()) }
}

async function heardOf(locks: ReturnType<typeof createLocks>): Promise<unknown[]> {
  const heard = hear(locks)
  const lease = await locks.acquire('k')
  await locks.tryAcquire('k')
  await lease.release()
  expect(story(heard)).toBe('requested acquired requested busy released')
  return heard
}
