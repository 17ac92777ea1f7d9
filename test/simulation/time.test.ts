import { describe, expect, test } from 'vitest'
import { SimulatedClock, SimulatedProcess, SimulatedTime } from '../../src/testing/index.ts'

describe('simulated time', () => {
  test('passes in the order of events, in order of their arrival when they meet, and ends when it was told to', async () => {
    const time = new SimulatedTime()
    const seen: string[] = []
    const note = (what: string) => () => seen.push(`${what} at ${time.monotonicMs()}`)
    for (const [what, delayMs] of Object.entries({ c: 30, a: 10, b: 10, d: 31, late: 101 }))
      time.startTimer(delayMs, note(what))
    await time.advance(100)
    expect(seen).toEqual(['a at 10', 'b at 10', 'c at 30', 'd at 31'])
    expect(time.monotonicMs()).toBe(100)
    await time.advance(1)
    expect(seen.at(-1)).toBe('late at 101')
  })

  test('never goes back, also when two calls let it pass at once', async () => {
    const time = new SimulatedTime()
    await Promise.all([time.advance(100), time.advance(10)])
    expect(time.monotonicMs()).toBe(100)
    await Promise.all([time.advance(10), time.advance(100)])
    expect(time.monotonicMs()).toBe(200)
  })

  test('lets everything that follows from one event happen before the next event', async () => {
    const time = new SimulatedTime()
    const seen: string[] = []
    time.startTimer(1, async () => {
      for (let turn = 0; turn < 50; turn += 1) await Promise.resolve()
      seen.push('the fiftieth promise')
    })
    time.startTimer(1, () => seen.push('the next event'))
    await time.advance(1, () => seen.push('a look'))
    expect(seen).toEqual(['the fiftieth promise', 'a look', 'the next event', 'a look'])
  })

  test('forgets a timer that was stopped, among many others', async () => {
    const time = new SimulatedTime()
    const fired: number[] = []
    const timers = Array.from({ length: 200 }, (_, index) =>
      time.startTimer((index * 7919) % 1009, () => fired.push((index * 7919) % 1009)),
    )
    for (const [index, timer] of timers.entries()) if (index % 3 === 0) timer.stop()
    await time.advance(2000)
    expect(fired).toHaveLength(133)
    expect(fired).toEqual(fired.toSorted((one, other) => one - other))
  })
})

describe('a simulated clock', () => {
  test('runs at its rate, and its timers with it', async () => {
    const time = new SimulatedTime()
    const clock = new SimulatedClock({ time, rate: 0.5, aheadMs: 3000 })
    const [monotonic, wall] = [clock.monotonicMs(), clock.wallMs()]
    let firedAt = 0
    clock.startTimer(100, () => {
      firedAt = time.monotonicMs()
    })
    await time.advance(1000)
    expect([clock.monotonicMs() - monotonic, clock.wallMs() - wall]).toEqual([500, 500])
    expect(wall).toBe(time.wallMs() - 1000 + 3000)
    expect(firedAt).toBe(200)
    expect(clock.timers).toBe(0)
  })

  test('jumps only on the wall, and stands still except on the wall', async () => {
    const time = new SimulatedTime()
    const clock = new SimulatedClock({ time })
    const [monotonic, wall] = [clock.monotonicMs(), clock.wallMs()]
    let fired = false
    clock.startTimer(50, () => {
      fired = true
    })
    clock.jump(-3_600_000)
    clock.standStill()
    await time.advance(100)
    expect([clock.monotonicMs() - monotonic, clock.wallMs() - wall]).toEqual([0, 100 - 3_600_000])
    clock.goOn()
    await time.advance(49)
    expect(fired).toBe(false)
    await time.advance(1)
    expect(fired).toBe(true)
  })
})

describe('a simulated process', () => {
  test('that was paused does everything afterwards, each event with all that follows from it, in either order', async () => {
    for (const timersFirst of [true, false]) {
      const time = new SimulatedTime()
      const process = new SimulatedProcess({ name: 'p', time, timersFirst: () => timersFirst })
      const seen: string[] = []
      const note = (what: string) => async (): Promise<void> => {
        seen.push(what)
        await undefined
        seen.push(`${what} is done`)
      }
      process.pause()
      process.deliver(note('message'))
      process.clock.startTimer(10, note('timer'))
      await time.advance(100)
      expect([seen, process.upToDate, process.pauses]).toEqual([[], false, 1])
      process.resume()
      process.deliver(note('later'))
      await time.advance(0)
      const order = timersFirst ? ['timer', 'message', 'later'] : ['message', 'timer', 'later']
      expect(seen).toEqual(order.flatMap((what) => [what, `${what} is done`]))
      expect(process.upToDate).toBe(true)
    }
  })

  test('that crashed does nothing any more', async () => {
    const time = new SimulatedTime()
    const process = new SimulatedProcess({ name: 'p', time })
    const seen: string[] = []
    process.clock.startTimer(10, () => seen.push('timer'))
    process.pause()
    process.deliver(() => seen.push('message'))
    process.crash()
    process.resume()
    process.deliver(() => seen.push('another'))
    await time.advance(100)
    expect([seen, process.alive]).toEqual([[], false])
  })

  test('does a deferred action in the same turn as the next event that reaches it, and once', async () => {
    const process = new SimulatedProcess({ name: 'p', time: new SimulatedTime() })
    const seen: string[] = []
    process.afterNext(() => seen.push('after'))
    process.deliver(() => seen.push('one'))
    process.deliver(() => seen.push('two'))
    expect(seen).toEqual(['one', 'after', 'two'])
  })
})
