import { join } from 'node:path'
import { expect, test } from 'vitest'
import type { AcquireAnswer, Store } from '../../../src/contract/store.ts'
import { type SqliteStoreOptions, sqliteStore } from '../../../src/stores/sqlite/index.ts'
import { seededRandom } from '../../../src/testing/index.ts'
import { freshFolder } from './lock-folder.ts'
import { startProcess } from './processes/store-process.ts'
import { ticket } from './tickets.ts'

const folder = freshFolder()
let files = 0

/** A machine whose clocks are set by hand, and which can be started anew. */
class Machine {
  readonly path: string = join(folder, `${++files}.db`)
  /** Milliseconds since the boot. */
  ms = 50_000
  /** Milliseconds since 1970. They may be wrong. */
  wallMs = 1_800_000_000_000
  boot = 'first'

  open(options: Partial<SqliteStoreOptions> = {}): Store {
    const now = () => ({ ms: this.ms, us: this.wallMs * 1000 })
    return sqliteStore({ path: this.path, now, boot: this.boot, ...options })
  }

  pass(ms: number): void {
    this.ms += ms
    this.wallMs += ms
  }

  restart(): void {
    this.boot += ', then another'
    this.ms = 3_000
  }
}

function fenceIn(answer: AcquireAnswer): bigint {
  if (answer.tag !== 'held') throw new Error(`Expected a free key, got ${answer.tag}`)
  return answer.fence
}

async function fenceOf(store: Store, key = 'key', work: () => void = () => {}): Promise<bigint> {
  const mine = ticket({ key })
  const fence = fenceIn(await store.acquire(mine))
  work()
  await store.release({ key, id: mine.id, cancel: false })
  return fence
}

test('a wall clock that is set forward or back expires no ticket, and keeps none longer', async () => {
  const machine = new Machine()
  const store = machine.open()
  for (const hours of [1, -1, 24 * 365 * 20, -24 * 365 * 50]) {
    const [mine, next] = [ticket({ ttlMs: 10_000 }), ticket()]
    await store.acquire(mine)
    machine.wallMs += hours * 3_600_000
    machine.pass(9_999)
    expect(await store.acquire(next)).toMatchObject({ tag: 'queued', askAgainMs: 1 })
    machine.pass(1)
    expect(await store.renew([next])).toMatchObject([{ tag: 'held' }])
    await store.release({ key: next.key, id: next.id, cancel: false })
  }
  await store.close()
})

test('a fence is the wall clock in µs, as long as that does not go back', async () => {
  const machine = new Machine()
  const store = machine.open()
  expect(await fenceOf(store)).toBe(BigInt(machine.wallMs) * 1000n)
  machine.pass(86_400_000)
  machine.wallMs += 3_600_000
  expect(await fenceOf(store)).toBe(BigInt(machine.wallMs) * 1000n)
  await store.close()
})

test('a fence is above the one before, when the wall clock was set back in between', async () => {
  for (const backMs of [1, 5_000, 3_600_000, 1e12]) {
    const machine = new Machine()
    const store = machine.open()
    let last = 0n
    for (const jumpMs of [0, 0, backMs, 0, 0]) {
      machine.pass(5_000)
      machine.wallMs -= jumpMs
      const fence = await fenceOf(store, 'key', () => machine.pass(10))
      expect(fence, `${backMs} ms back`).toBeGreaterThan(last)
      last = fence
    }
    await store.close()
  }
})

test('fences that ran ahead at the end of a second of the clock are not given again', async () => {
  const machine = new Machine()
  const store = machine.open()
  const readers = Array.from({ length: 100 }, () => ticket({ key: 'key', limit: 1000 }))
  // Its grant writes the moment that is good for a second.
  const writer = ticket({ key: 'key' })
  await store.acquire(writer)
  for (const reader of readers) await store.acquire(reader)
  machine.pass(999.99)
  await store.release({ key: 'key', id: writer.id, cancel: false })
  const fences = (await store.renew(readers)).map((answer) => (answer.tag === 'held' ? answer.fence : 0n))
  machine.pass(10)
  for (const { id } of readers) await store.release({ key: 'key', id, cancel: false })
  machine.wallMs -= 3_600_000
  expect(await fenceOf(store)).toBeGreaterThan(fences.at(-1) ?? 0n)
  await store.close()
})

test('after a reboot no ticket holds, waits or is gone', async () => {
  const machine = new Machine()
  const before = machine.open()
  const [holder, waiter, cancelled] = [ticket(), ticket(), ticket({ key: 'other' })]
  const dead = ticket({ key: 'closed', ttlMs: 1_000, lockDelayMs: 60_000 })
  for (const each of [holder, waiter, dead]) await before.acquire(each)
  machine.pass(1_000)
  await before.release({ key: cancelled.key, id: cancelled.id, cancel: true })
  await before.release({ key: dead.key, id: dead.id, cancel: false })
  await before.close()
  machine.restart()
  const after = machine.open()
  expect(await after.inspect({ prefix: '', cursor: undefined, count: 9 })).toEqual({
    rooms: [],
    next: undefined,
  })
  expect(await after.renew([holder, waiter])).toMatchObject([{ tag: 'gone' }, { tag: 'gone' }])
  for (const key of ['key', 'other', 'closed'])
    expect(await after.acquire(ticket({ key }))).toMatchObject({ tag: 'held' })
  expect(await after.acquire(cancelled)).toMatchObject({ tag: 'queued' })
  await after.close()
})

test('a second process of the same boot drops no ticket', async () => {
  const machine = new Machine()
  const [one, other] = [machine.open(), machine.open()]
  const mine = ticket()
  const answer = await one.acquire(mine)
  expect(await other.renew([mine])).toEqual([answer])
  await one.close()
  await other.close()
})

test.each([
  ['cannot read the name of the boot', 'first', ''],
  ['could not read it when the file was made', '', 'first'],
  ['has another name for it, as a container may', 'first', 'second'],
])('a process that %s drops no ticket, and nor does the next one', async (_what, of, other) => {
  const machine = new Machine()
  const mine = ticket()
  const one = machine.open({ boot: of })
  const answer = await one.acquire(mine)
  machine.pass(1500)
  const stores = [other, of, other].map((boot) => machine.open({ boot }))
  for (const store of stores)
    expect(await store.acquire(ticket({ patienceMs: 0 }))).toMatchObject({ tag: 'busy' })
  expect(await one.renew([mine])).toEqual([answer])
  await one.release({ key: mine.key, id: mine.id, cancel: false })
  const fences = [fenceIn(answer)]
  for (const store of [...stores, one]) fences.push(await fenceOf(store))
  expect(fences).toEqual([...fences].sort((before, after) => (before < after ? -1 : 1)))
  expect(new Set(fences).size).toBe(fences.length)
  for (const store of [one, ...stores]) await store.close()
})

test('a process with another name for the boot drops no ticket after the machine has slept', async () => {
  const machine = new Machine()
  machine.ms = 4 * 3_600_000
  const one = machine.open()
  const mine = ticket()
  const answer = await one.acquire(mine)
  // The monotonic clock stands still meanwhile.
  machine.wallMs += 3 * 3_600_000
  const other = machine.open({ boot: '' })
  expect(await other.acquire(ticket({ patienceMs: 0 }))).toMatchObject({ tag: 'busy' })
  expect(await one.renew([mine])).toEqual([answer])
  await one.close()
  await other.close()
})

test('a reboot is noticed although the machine runs for longer than before its last grant', async () => {
  const machine = new Machine()
  const before = machine.open()
  const dead = ticket({ ttlMs: 10_000 })
  await before.acquire(dead)
  // Renewals write no moment into the file.
  for (let passed = 0; passed < 600_000; passed += 5000) {
    machine.pass(5000)
    expect(await before.renew([dead])).toMatchObject([{ tag: 'held' }])
  }
  await before.close()
  machine.restart()
  machine.pass(60_000)
  const after = machine.open()
  expect(await after.acquire(ticket({ patienceMs: 0 }))).toMatchObject({ tag: 'held' })
  await after.close()
})

test('a reboot is noticed by a process that cannot read its name, and ends no lease that was taken after it', async () => {
  const machine = new Machine()
  const before = machine.open()
  await before.acquire(ticket())
  await before.close()
  machine.restart()
  const nameless = machine.open({ boot: '' })
  const mine = ticket()
  const answer = await nameless.acquire(mine)
  expect(answer).toMatchObject({ tag: 'held' })
  const other = machine.open()
  expect(await other.acquire(ticket({ patienceMs: 0 }))).toMatchObject({ tag: 'busy' })
  expect(await nameless.renew([mine])).toEqual([answer])
  await nameless.close()
  await other.close()
})

test('where boots have no name, a clock that is behind means a reboot, and any other clock costs the ttl at most', async () => {
  const machine = new Machine()
  const mine = ticket({ ttlMs: 20_000 })
  const first = machine.open({ boot: '' })
  await first.acquire(mine)
  await first.close()
  // The machine was off for so long that the new clock is ahead of the old one already.
  machine.ms += 10_000
  const second = machine.open({ boot: '' })
  expect(await second.acquire(ticket({ patienceMs: 0 }))).toEqual({ tag: 'busy', retryMs: 10_000 })
  await second.close()
  machine.ms = 3_000
  const third = machine.open({ boot: '' })
  expect(await third.acquire(ticket({ patienceMs: 0 }))).toMatchObject({ tag: 'held' })
  await third.close()
})

test('fences rise over everything that can happen to clocks, keys, processes and the machine', async () => {
  for (let seed = 0; seed < 40; seed += 1) {
    const random = seededRandom(`fences ${seed}`)
    const machine = new Machine()
    const stores = [machine.open(), machine.open()]
    const last = new Map<string, bigint>()
    for (let step = 0; step < 60; step += 1) {
      const key = random.pick(['a', 'b'])
      const store = random.pick(stores)
      const wave = Array.from({ length: random.pick([1, 1, 3]) }, () => ticket({ key, limit: 9 }))
      const happening = random.pick(['grant', 'grant', 'crowd', 'pass', 'jump', 'restart', 'reopen'])
      if (happening === 'pass') machine.pass(random.pick([0, 0.001, 1, 999, 1_000, 1_001, 100_000]))
      if (happening === 'jump')
        machine.wallMs += random.pick([1, -1]) * random.pick([10, 5_000, 3_600_000, 1e12])
      if (happening === 'restart') {
        for (const open of stores) await open.close()
        machine.restart()
        stores.splice(0, 2, machine.open(), machine.open())
      }
      if (happening === 'reopen') {
        await stores.shift()?.close()
        stores.push(machine.open())
      }
      if (happening === 'crowd') {
        // One step lets many tickets in, so their fences run ahead of the clock. Then all of them leave at once.
        const gate = ticket({ key })
        await store.acquire(gate)
        for (const each of wave) await store.acquire(each)
        await store.release({ key, id: gate.id, cancel: false })
        const fences = (await store.renew(wave)).map((answer) => (answer.tag === 'held' ? answer.fence : 0n))
        for (const fence of fences) {
          expect(fence, `seed ${seed}, step ${step}`).toBeGreaterThan(last.get(key) ?? 0n)
          last.set(key, fence)
        }
        for (const { id } of wave) await store.release({ key, id, cancel: false })
      }
      if (happening === 'grant') {
        const fence = await fenceOf(store, key, () => machine.pass(random.pick([0, 10])))
        expect(fence, `seed ${seed}, step ${step}`).toBeGreaterThan(last.get(key) ?? 0n)
        last.set(key, fence)
      }
    }
    for (const store of stores) await store.close()
  }
})

test('all processes read the same clock', async () => {
  const before = process.hrtime.bigint()
  const child = startProcess(new URL('processes/tell-time.ts', import.meta.url))
  const { time } = await new Promise<{ time: bigint }>((resolve) =>
    child.once('message', resolve as () => void),
  )
  expect(time).toBeGreaterThan(before)
  expect(time).toBeLessThan(process.hrtime.bigint())
})
