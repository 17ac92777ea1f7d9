import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type Bucket, TimerWheel, type WheelEntry } from '../../src/engine/timer-wheel.ts'

/** Counts how often the wheel reads when it is due. */
class Entry implements WheelEntry<Entry> {
  bucket: Bucket<Entry> | undefined
  previous: Entry | undefined
  next: Entry | undefined
  readonly slackMs: number
  looks = 0
  #dueAt: number

  constructor(dueAt: number, slackMs: number) {
    this.#dueAt = dueAt
    this.slackMs = slackMs
  }

  get dueAt(): number {
    this.looks += 1
    return this.#dueAt
  }

  set dueAt(at: number) {
    this.#dueAt = at
  }
}

const MOST = 7

/** The entries that one round takes, in as many steps as it needs. */
function takeAll(wheel: TimerWheel<Entry>, now: number): Entry[] {
  const taken: Entry[] = []
  wheel.advance(now)
  while (wheel.isBehind) taken.push(...wheel.takeUrgent(MOST), ...wheel.takeDue(MOST, now))
  return taken
}

/** The entries of all rounds at one moment, until the wheel wants to be asked later. */
function takeDue(wheel: TimerWheel<Entry>, now: number): Entry[] {
  const taken = takeAll(wheel, now)
  for (let rounds = 1; wheel.nextAt() <= now; rounds += 1) {
    expect(rounds).toBeLessThanOrEqual(6)
    taken.push(...takeAll(wheel, now))
  }
  return taken
}

const spans = fc.oneof(
  fc.double({ min: 0, max: 40, noNaN: true }),
  fc.double({ min: 0, max: 60_000, noNaN: true }),
  fc.double({ min: 0, max: 2 ** 33, noNaN: true }),
)
const slacks = fc.oneof(fc.constant(0), fc.double({ min: 0, max: 3000, noNaN: true }))
const steps = fc.oneof(
  { weight: 4, arbitrary: fc.record({ do: fc.constant('put' as const), spanMs: spans, slackMs: slacks }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('change' as const), which: fc.nat(), spanMs: spans }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('remove' as const), which: fc.nat() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('hurry' as const), which: fc.nat() }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('wait' as const), ms: spans }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('wake' as const), lateMs: fc.nat(50) }) },
)

describe('a timer wheel', () => {
  test('takes what a walk over a list takes: all that is due, and nothing that must not be taken yet', () => {
    fc.assert(
      fc.property(fc.double({ min: 0, max: 1e7, noNaN: true }), fc.array(steps), (start, history) => {
        const wheel = new TimerWheel<Entry>()
        let entries: Entry[] = []
        const hurried = new Set<Entry>()
        let now = start
        const pick = (which: number) => entries[which % Math.max(1, entries.length)]
        const look = () => {
          const taken = takeDue(wheel, now)
          expect(new Set(taken).size).toBe(taken.length)
          for (const entry of taken) {
            if (!hurried.delete(entry)) expect(entry.dueAt - entry.slackMs).toBeLessThanOrEqual(now)
            wheel.remove(entry)
          }
          entries = entries.filter((entry) => !taken.includes(entry))
          // No timer fires within a millisecond, so up to that much is no delay.
          for (const entry of entries) expect(Math.ceil(entry.dueAt)).toBeGreaterThan(now)
        }
        for (const step of history) {
          switch (step.do) {
            case 'put': {
              const entry = new Entry(now + step.spanMs, step.slackMs)
              entries.push(entry)
              expect(wheel.put(entry, now)).toBeLessThanOrEqual(Math.ceil(entry.dueAt))
              break
            }
            case 'change': {
              const entry = pick(step.which)
              if (entry === undefined) break
              entry.dueAt = now + step.spanMs
              wheel.put(entry, now)
              break
            }
            case 'remove': {
              const entry = pick(step.which)
              if (entry === undefined) break
              wheel.remove(entry)
              hurried.delete(entry)
              entries = entries.filter((one) => one !== entry)
              break
            }
            case 'hurry': {
              const entry = pick(step.which)
              if (entry === undefined) break
              wheel.putFirst(entry)
              hurried.add(entry)
              break
            }
            case 'wait':
              now += step.ms
              look()
              break
            case 'wake':
              if (entries.length === 0) break
              if (!wheel.isBehind) now = Math.max(now, wheel.nextAt()) + step.lateMs
              look()
              break
            default:
              step satisfies never
          }
          expect(wheel.size).toBe(entries.length)
          expect(new Set(wheel)).toEqual(new Set(entries))
          const earliest = Math.min(...entries.map(({ dueAt }) => Math.ceil(dueAt)))
          if (!wheel.isBehind) expect(wheel.nextAt()).toBeLessThanOrEqual(earliest)
        }
      }),
    )
  })

  test('looks at what is due, however much is not', () => {
    const wheel = new TimerWheel<Entry>()
    const later = Array.from(
      { length: 20_000 },
      (_, index) => new Entry(60_000 + index, index % 2 === 0 ? 500 : 0),
    )
    for (const entry of later) wheel.put(entry, 0)
    const looksToPut = looksAt(later)
    for (let now = 0; now < 50_000; now += 100) {
      const due = [new Entry(now + 50, 0), new Entry(now + 90, 20)]
      for (const entry of due) wheel.put(entry, now)
      expect(takeDue(wheel, now + 100)).toEqual(expect.arrayContaining(due))
      for (const entry of due) wheel.remove(entry)
    }
    // Without slack, each entry moves to a narrower bucket when its time comes nearer: a few times in its life.
    expect(looksAt(later) - looksToPut).toBeLessThanOrEqual(2 * later.length)
    expect(looksToPut).toBeLessThanOrEqual(2 * later.length)
  })

  test('takes a batch at a time, so that a round can be interrupted', () => {
    const wheel = new TimerWheel<Entry>()
    const entries = Array.from({ length: 100 }, () => new Entry(10, 5))
    for (const entry of entries) wheel.put(entry, 0)
    wheel.advance(10)
    expect(wheel.takeDue(60, 10)).toHaveLength(60)
    expect(wheel.isBehind).toBe(true)
    expect(wheel.takeDue(60, 10)).toHaveLength(40)
    wheel.takeDue(60, 10)
    expect(wheel.isBehind).toBe(false)
  })

  test('takes what has no slack first, also when it is behind with what has some', () => {
    const wheel = new TimerWheel<Entry>()
    const patient = [new Entry(1, 100), new Entry(2, 100)]
    for (const entry of patient) wheel.put(entry, 0)
    wheel.advance(5)
    expect(wheel.takeDue(1, 5)).toEqual([patient[0]])
    const exact = new Entry(7, 0)
    wheel.put(exact, 5)
    wheel.advance(8)
    expect(wheel.takeDue(1, 8)).toEqual([exact])
    expect(wheel.takeDue(10, 8)).toEqual([patient[1]])
  })

  test('takes every entry after a sleep, also those that are due much later', () => {
    const wheel = new TimerWheel<Entry>()
    const entries = [new Entry(10, 0), new Entry(5000, 0), new Entry(30_000, 3000), new Entry(1e9, 0)]
    for (const entry of entries) wheel.put(entry, 0)
    wheel.advance(1, { every: true })
    expect(new Set(wheel.takeDue(10, 1))).toEqual(new Set(entries))
  })

  test('keeps an entry that is urgent first, whatever it is put to', () => {
    const wheel = new TimerWheel<Entry>()
    const [urgent, due] = [new Entry(1000, 0), new Entry(5, 0)]
    for (const entry of [due, urgent]) wheel.put(entry, 0)
    wheel.putFirst(urgent)
    wheel.put(urgent, 0)
    expect(wheel.takeUrgent(10)).toEqual([urgent])
    expect(wheel.isTaken(urgent)).toBe(true)
    expect(wheel.isBehind).toBe(false)
  })

  test('forgets what was put first and then removed', () => {
    const wheel = new TimerWheel<Entry>()
    const entry = new Entry(1000, 0)
    wheel.put(entry, 0)
    wheel.putFirst(entry)
    wheel.remove(entry)
    wheel.putFirst(entry)
    expect(wheel.takeUrgent(10)).toEqual([])
    expect(wheel.size).toBe(0)
  })

  test('never wakes for what is never due', () => {
    const wheel = new TimerWheel<Entry>()
    const entry = new Entry(Number.POSITIVE_INFINITY, 0)
    expect(wheel.put(entry, 0)).toBe(Number.POSITIVE_INFINITY)
    expect(wheel.nextAt()).toBe(Number.POSITIVE_INFINITY)
    expect(takeDue(wheel, 1e12)).toEqual([])
    expect([...wheel]).toEqual([entry])
  })
})

function looksAt(entries: readonly Entry[]): number {
  return entries.reduce((sum, { looks }) => sum + looks, 0)
}
