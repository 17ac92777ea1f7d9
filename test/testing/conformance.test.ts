import { describe, expect, test, vi } from 'vitest'
import type { Store } from '../../src/contract/store.ts'
import { InvalidArgumentError } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { type ConformanceSubject, storeConformance } from '../../src/testing/index.ts'
import { boundStore } from '../stores/bound-store.ts'

describe('the conformance suite', () => {
  test('states each thing once', () => {
    const names = storeConformance({ open: () => memoryStore() }).map(({ name }) => name)
    expect(new Set(names).size).toBe(names.length)
    expect(names.length).toBeGreaterThan(70)
  })

  test.each([
    [undefined, 'Expected the options to be an object with `open`, got undefined.'],
    [{ open: 1 }, 'Expected `open` to be a function, got 1.'],
  ])('refuses %o in one sentence', (subject, message) => {
    expect(() => storeConformance(subject as never)).toThrow(new InvalidArgumentError(message))
  })

  test('can be run all at once', async () => {
    const store = memoryStore()
    await Promise.all(storeConformance({ open: () => store }).map(({ run }) => run()))
  })

  test('can be run on time that the caller lets pass, for a store without wakes', async () => {
    const { store, pass } = withTime()
    const { acquire, renew, release, inspect, evict, close } = boundStore(store)
    const silent: Store = { name: 'silent', acquire, renew, release, inspect, evict, close }
    const cases = storeConformance({ open: () => silent, pass, pushes: false, sharesClock: true })
    for (const { run } of cases) await run()
    expect(cases.length).toBeGreaterThan(60)
  })

  test('begins again with longer times when a case was too slow to mean anything', async () => {
    const store = memoryStore()
    const asked: number[] = []
    const slowAtFirst: Store = {
      ...boundStore(store),
      name: 'slow at first',
      async acquire(ticket) {
        asked.push(ticket.ttlMs)
        if (asked.length === 1) await new Promise((resolve) => setTimeout(resolve, 350))
        return store.acquire(ticket)
      },
    }
    const name = 'a holder that is renewed, or asks again, has its full ttl anew'
    await runCase(name, { open: () => slowAtFirst })
    const [first = 0] = asked
    expect(new Set(asked)).toContain(first * 4)
  })

  test('fails, whatever a case found, when something is left behind', async () => {
    const store = memoryStore()
    const clinging: Store = { ...boundStore(store), name: 'clinging', release: () => ({ was: 'held' }) }
    const name = 'a batch of a thousand tickets on a thousand keys is one call'
    await expect(runCase(name, { open: () => clinging })).rejects.toThrow('Left behind')
  })

  test('asks the subject what is left behind where `inspect` does not look', async () => {
    const store = memoryStore()
    const subject: ConformanceSubject = { open: () => store, leftovers: (prefix) => [`${prefix}queue`] }
    const name = 'keys that were taken and released leave nothing behind'
    await expect(runCase(name, subject)).rejects.toThrow(/queue/)
  })

  test('closes every view that it opened, also when a case fails', async () => {
    const open = new Set<number>()
    let opened = 0
    const views = (): Store => {
      opened += 1
      const view = opened
      open.add(view)
      const close = async () => {
        open.delete(view)
      }
      return { ...boundStore(memoryStore()), name: 'apart', close }
    }
    const outcomes = await Promise.allSettled(
      storeConformance({ open: views, pushes: false })
        .slice(0, 12)
        .map(({ run }) => run()),
    )
    expect(outcomes.some(({ status }) => status === 'rejected')).toBe(true)
    expect(opened).toBeGreaterThan(12)
    expect(open).toEqual(new Set())
  })

  test('leaves no timer behind that would keep the process alive', async () => {
    const set = vi.spyOn(globalThis, 'setTimeout')
    const cleared = vi.spyOn(globalThis, 'clearTimeout')
    const store = memoryStore()
    // Of a server, only one of the two views hears of the ticket.
    const deaf: Store = { ...boundStore(store), name: 'deaf', listen: async () => () => {} }
    const views = [store, deaf]
    const name = 'a ticket that asked again through another view is still woken'
    await runCase(name, { open: () => views.shift() ?? store })
    const long = set.mock.results.filter((_, index) => (set.mock.calls[index]?.[1] ?? 0) >= 30_000)
    const left = long.filter(({ value }) => !cleared.mock.calls.some(([timer]) => timer === value))
    vi.restoreAllMocks()
    expect(left).toEqual([])
  })

  test('finds out a store that believes the clock of its client', async () => {
    const store = memoryStore({ now: () => ({ ms: Date.now(), us: Date.now() * 1000 }) })
    const name = 'the clock of the client decides nothing: an hour ahead or behind changes no answer'
    const now = Date.now
    await expect(runCase(name, { open: () => store })).rejects.toThrow()
    expect(Date.now).toBe(now)
  })
})

async function runCase(name: string, subject: ConformanceSubject): Promise<void> {
  const found = storeConformance(subject).find((each) => each.name === name)
  if (found === undefined) throw new Error(`Expected a case of the name “${name}”`)
  await found.run()
}

function withTime() {
  let ms = Date.now()
  return {
    store: memoryStore({ now: () => ({ ms, us: ms * 1000 }) }),
    pass: (by: number) => {
      ms += by
    },
  }
}
