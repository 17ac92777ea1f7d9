import { expect, onTestFinished, test } from 'vitest'
import type { GroupMember, Locks } from '../../src/index.ts'
import { settled } from '../engine/fake-clock.ts'
import { errorOf, outcomeOf, type Scene, scene, startProcess } from '../engine/scene.ts'
import { Letter, ScriptedStore } from '../engine/scripted-store.ts'

const valuesOf = (members: readonly GroupMember[] | undefined) => members?.map(({ value }) => value).sort()

/** Records what it observes until the end of the test. */
function observer({ clock }: Scene, locks: Pick<Locks, 'group'>): (readonly GroupMember[])[] {
  const end = new AbortController()
  const seen: (readonly GroupMember[])[] = []
  const over = (async () => {
    for await (const members of locks.group('k').observe({ signal: end.signal })) seen.push(members)
  })()
  onTestFinished(async () => {
    end.abort()
    await clock.until(over)
    await clock.advance(5000)
  })
  return seen
}

test('shows who is in the group, each once and with its last value', async () => {
  const { locks, other, clock } = scene()
  expect(await locks.group('k').members()).toEqual([])
  const one = await locks.group('k').join({ value: 'one' })
  const two = await other.locks.group('k').join()
  await one.update('uno')
  const members = await locks.group('k').members()
  expect(members).toHaveLength(2)
  expect(members.find(({ id }) => id === one.id)).toEqual({
    id: one.id,
    value: 'uno',
    owner: { label: 'test' },
  })
  expect(members.find(({ id }) => id === two.id)).toMatchObject({ value: undefined })
  await one.leave()
  await one.leave()
  expect(await errorOf(one.update('gone'))).toMatchObject({ code: 'lease-lost', reason: 'released' })
  expect(await locks.group('k').members()).toMatchObject([{ id: two.id }])
  await two.leave()
  await clock.advance(100)
})

test('tells observers at once who joins, who has another value, and who leaves', async () => {
  const here = scene()
  const { locks, other, clock, store } = here
  const seen = observer(here, locks)
  await clock.untilTrue(() => seen.length === 1)
  expect(seen).toEqual([[]])
  const before = clock.monotonicMs()
  const one = await other.locks.group('k').join({ value: 'one' })
  await clock.untilTrue(() => valuesOf(seen.at(-1))?.[0] === 'one')
  await one.update('uno')
  await clock.untilTrue(() => valuesOf(seen.at(-1))?.[0] === 'uno')
  await one.leave()
  await clock.untilTrue(() => seen.at(-1)?.length === 0)
  expect(clock.monotonicMs() - before).toBeLessThan(500)

  // Many changes at the same time cost few looks.
  await clock.advance(1000)
  const asked = store.sent.length
  const crowd = await Promise.all(Array.from({ length: 50 }, () => other.locks.group('k').join()))
  await clock.untilTrue(() => seen.at(-1)?.length === 50)
  expect(store.sent.length - asked).toBeLessThan(10)
  await Promise.all(crowd.map((one) => one.leave()))
  await clock.advance(1000)
})

test('misses a member that died as soon as its lease runs out, and asks seldom until then', async () => {
  const here = scene()
  const { locks, clock, store } = here
  const alive = await locks.group('k').join({ value: 'alive' })
  const theirs = new ScriptedStore(store.real)
  const doomed = startProcess(theirs, clock)
  await doomed.locks.group('k').join({ value: 'doomed', ttl: '9s' })
  const seen = observer(here, locks)
  await clock.untilTrue(() => valuesOf(seen[0])?.length === 2)
  const asked = store.sent.length
  await clock.advance(60_000)
  // Beside the looks, two leases are renewed every ten seconds.
  expect(store.sent.length - asked).toBeLessThan(30)
  // Its process is gone: nothing renews the lease, and nobody rings.
  theirs.always('lose request')
  const diesAt = clock.monotonicMs()
  await clock.untilTrue(() => seen.at(-1)?.length === 1)
  expect(clock.monotonicMs() - diesAt).toBeLessThan(9500)
  await alive.leave()
})

test('aborts the signal of a membership that is lost, and lets it join again', async () => {
  const { locks, other, clock } = scene()
  const lost = await locks.group('k').join({ value: 'old', ttl: '3s' })
  await lost.update('newer')
  expect(lost.signal.aborted).toBe(false)
  await other.locks.evictAll('k#members', { reason: 'test' })
  await clock.untilTrue(() => lost.signal.aborted)
  expect(lost.signal.reason).toMatchObject({ code: 'lease-lost', reason: 'evicted' })
  expect(await errorOf(lost.update('newest'))).toBe(lost.signal.reason)
  const again = await locks.group('k').join({ value: 'new' })
  expect(valuesOf(await other.locks.group('k').members())).toEqual(['new'])
  await Promise.all([lost.leave(), again.leave()])
  await clock.advance(100)
})

test.each(['acquire', 'renew'] as const)(
  'leaves no member behind when its old ticket is lost as it gets a new one (%s answered first)',
  async (first) => {
    const { locks, other, store, clock } = scene()
    const member = await locks.group('k').join({ value: 'old', ttl: '3s' })
    const [old] = (await other.locks.peek('k#members'))?.holders ?? []
    const letters = { acquire: new Letter(), renew: new Letter() }
    for (const verb of ['acquire', 'renew'] as const) store.next(verb, letters[verb])
    await other.locks.evict('k#members', String(old?.id), { reason: 'test' })
    const updating = errorOf(member.update('new'))
    await clock.untilTrue(() => store.sent.some(({ verb }) => verb === 'renew'))
    for (const letter of Object.values(letters)) letter.arrive()
    letters[first].reply()
    for (const letter of Object.values(letters)) letter.reply()
    expect(await clock.until(updating)).toMatchObject({ code: 'lease-lost', reason: 'evicted' })
    expect(member.signal.aborted).toBe(true)
    await clock.advance(100)
    expect(await other.locks.group('k').members()).toEqual([])
    await member.leave()
  },
)

test('leaves at once while an update waits for the store, and leaves no ticket of it behind', async () => {
  const { locks, other, store, clock } = scene()
  const member = await locks.group('k').join({ value: 'old' })
  const before = clock.monotonicMs()
  const letter = new Letter()
  store.next('acquire', letter)
  const updating = errorOf(member.update('new'))
  await settled()
  letter.arrive()
  await clock.until(member.leave())
  expect(await updating).toMatchObject({ code: 'lease-lost', reason: 'released' })
  expect(clock.monotonicMs() - before).toBeLessThan(100)
  letter.reply()
  await clock.advance(100)
  expect(await other.locks.group('k').members()).toEqual([])
})

test('a second leave() waits for the first', async () => {
  const { locks, other, store, clock } = scene()
  const member = await locks.group('k').join()
  const letter = new Letter()
  store.next('release', letter)
  const left = [member.leave(), member.leave()]
  await settled()
  expect(await outcomeOf(Promise.race(left))).toBe('pending')
  letter.arrive().reply()
  await clock.until(Promise.all(left))
  expect(await other.locks.group('k').members()).toEqual([])
})

test('observers go on after an outage, and miss what was over by then', async () => {
  const here = scene()
  const { locks, other, clock, store } = here
  const seen = observer(here, locks)
  await clock.untilTrue(() => seen.length === 1)
  store.always('fail')
  const one = await other.locks.group('k').join({ value: 'one' })
  await clock.advance(40_000)
  expect(seen).toHaveLength(1)
  store.always('answer')
  await clock.untilTrue(() => valuesOf(seen.at(-1))?.[0] === 'one')
  await one.leave()
  await clock.untilTrue(() => seen.at(-1)?.length === 0)
})

test('an observer whose look gets no reply looks again within seconds', async () => {
  const here = scene()
  const { locks, other, clock, store } = here
  const seen = observer(here, locks)
  await clock.untilTrue(() => seen.length === 1)
  await clock.advance(1000)
  store.next('inspect', 'lose reply')
  const one = await other.locks.group('k').join({ value: 'one' })
  await clock.untilTrue(() => valuesOf(seen.at(-1))?.[0] === 'one', { withinMs: 4000 })
  await one.leave()
  await clock.untilTrue(() => seen.at(-1)?.length === 0)
})

test('an observer of a slow store waits longer for each reply', async () => {
  const here = scene()
  const { locks, clock, store } = here
  const letter = new Letter()
  store.next('inspect', 'lose request', 'lose request', letter)
  store.always('lose request', ['inspect'])
  const seen = observer(here, locks)
  await clock.untilTrue(() => store.count('inspect') === 3)
  await clock.advance(7000)
  letter.arrive().reply()
  await clock.untilTrue(() => seen.length === 1, { withinMs: 100 })
})

test('somebody who rings while an observer takes the bell is heard', async () => {
  const here = scene()
  const { locks, other, clock, store } = here
  // The bell is taken, the observer does not know, and it is evicted before the observer asks again.
  store.next('acquire', 'lose reply')
  const seen = observer(here, locks)
  await settled()
  const one = await other.locks.group('k').join({ value: 'one' })
  await clock.untilTrue(() => valuesOf(seen.at(-1))?.[0] === 'one', { withinMs: 30_000 })
  await one.leave()
  await clock.untilTrue(() => seen.at(-1)?.length === 0)
})

test('what another program holds there is no member', async () => {
  const { locks, clock } = scene()
  const foreign = await locks.acquire('k#members')
  expect(await locks.group('k').members()).toEqual([])
  await foreign.release()
  const reader = await locks.semaphore('k#members', 5).acquire()
  expect(await locks.group('k').members()).toEqual([])
  await reader.release()
  await clock.advance(100)
})

test('observing ends with the locks, and by its signal', async () => {
  const { locks, other, clock } = scene()
  const end = new AbortController()
  const aborted = locks.group('k').observe({ signal: end.signal })
  const closed = other.locks.group('k').observe()
  await clock.until(Promise.all([aborted.next(), closed.next()]))
  const nexts = [aborted.next(), errorOf(closed.next())] as const
  await settled()
  end.abort()
  expect(await clock.until(nexts[0])).toEqual({ done: true, value: undefined })
  await clock.until(other.locks.close())
  expect(await clock.until(nexts[1])).toMatchObject({ code: 'closed' })
  expect(await locks.group('k').observe({ signal: end.signal }).next()).toMatchObject({ done: true })
  await clock.advance(100)
})

test.each(['abort', 'return', 'close'] as const)(
  'observing ends at once while a look has no answer: %s',
  async (how) => {
    const { engine, locks, store, clock } = scene()
    store.next('inspect', 'lose request')
    const end = new AbortController()
    const changes = locks.group('k').observe({ signal: end.signal })
    const next = changes.next()
    await clock.untilTrue(() => store.count('inspect') === 1)
    if (how === 'abort') end.abort()
    const ended = how === 'return' ? changes.return() : how === 'close' ? locks.close() : undefined
    expect(await outcomeOf(next)).toMatchObject(
      how === 'close' ? { error: { code: 'closed' } } : { value: { done: true, value: undefined } },
    )
    expect(await outcomeOf(changes.next())).toEqual({ value: { done: true, value: undefined } })
    if (how === 'return')
      expect(await outcomeOf(Promise.resolve(ended))).toMatchObject({ value: { done: true } })
    expect(engine.onlookers.size).toBe(0)
    await ended
    await clock.advance(100)
  },
)

test('observing yields no change of a look that was answered as it was aborted', async () => {
  const { locks, other, store, clock } = scene()
  const end = new AbortController()
  const changes = locks.group('k').observe({ signal: end.signal })
  expect(await clock.until(changes.next())).toEqual({ done: false, value: [] })
  const letter = new Letter()
  store.next('inspect', letter)
  const looked = store.count('inspect')
  const next = changes.next()
  const one = await other.locks.group('k').join({ value: 'one' })
  await clock.untilTrue(() => store.count('inspect') === looked + 1)
  letter.arrive().reply()
  // The answer is on its way through promises by now.
  await undefined
  end.abort()
  expect(await outcomeOf(next)).toEqual({ value: { done: true, value: undefined } })
  await one.leave()
  await clock.advance(100)
})

test.each<[string, (locks: Locks) => Promise<unknown>]>([
  ['Expected `key` to be a string', async (locks) => locks.group('')],
  ['Expected `key` to have at most 1016 characters', async (locks) => locks.group('k'.repeat(1017))],
  ['Expected the options to be among', (locks) => locks.group('k').join({ wait: 1 } as object)],
  ['Expected `value` to be a text', (locks) => locks.group('k').join({ value: 'v'.repeat(1001) })],
  ['Expected `ttl` to be', (locks) => locks.group('k').join({ ttl: 'soon' })],
])('says what is wrong: %s', async (message, call) => {
  const { locks } = scene()
  const error = await errorOf((async () => call(locks as Locks))())
  expect(error).toMatchObject({ name: 'InvalidArgumentError', message: expect.stringContaining(message) })
})
