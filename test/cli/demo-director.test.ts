import { expect, onTestFinished, test } from 'vitest'
import { Chronicle } from '../../src/cli/demo/chronicle.ts'
import { direct } from '../../src/cli/demo/director.ts'
import { HandOvers } from '../../src/cli/demo/hand-overs.ts'
import { monotonicMs } from '../../src/cli/machine-time.ts'

const FAULT_EVERY_MS = 2000

test('the demo goes on if the worker that a fault is meant for has released the key before', async () => {
  const chronicle = new Chronicle()
  const handOvers = new HandOvers(chronicle)
  let worker = 0
  let isOver = false
  const takeOver = () => {
    worker += 1
    chronicle.add({ tag: 'acquired', atMs: monotonicMs(), worker } as never)
    // The first workers are quicker than the pause before a fault, a tenth of the time between two of them. The others
    // are slower.
    setTimeout(release, worker <= 3 ? 5 : FAULT_EVERY_MS / 2, worker)
  }
  const release = (one: number) => {
    if (isOver || one !== worker) return
    chronicle.add({ tag: 'released', atMs: monotonicMs(), worker } as never)
    takeOver()
  }
  const struck: number[] = []
  const crew = {
    hire() {},
    pidOf: () => 0,
    signal(one: number) {
      struck.push(one)
      if (one === worker) takeOver()
    },
    stop: () => expect.unreachable(),
    proceed: () => expect.unreachable(),
  }
  onTestFinished(() => {
    isOver = true
  })
  setTimeout(takeOver, FAULT_EVERY_MS + 100)
  await direct(
    { crew, chronicle, handOvers },
    {
      ...{ workers: 3, faultEveryMs: FAULT_EVERY_MS, durationMs: FAULT_EVERY_MS + 500, ttlMs: 100 },
      signal: new AbortController().signal,
    },
  )
  expect(struck).toHaveLength(1)
})

test('the demo goes on if the worker that a fault is meant for has lost the key before, or its last words are lost', async () => {
  const chronicle = new Chronicle()
  const handOvers = new HandOvers(chronicle)
  const acquired = (worker: number, atMs: number) => chronicle.add({ tag: 'acquired', atMs, worker } as never)
  const struck: number[] = []
  let hired = 0
  const crew = {
    hire() {
      hired += 1
    },
    pidOf: () => 0,
    signal(one: number) {
      struck.push(one)
      // The other one had the key before the strike, and its message comes after that.
      acquired(2, monotonicMs() - 10)
    },
    stop: () => expect.unreachable(),
    proceed: () => expect.unreachable(),
  }
  setTimeout(() => acquired(1, monotonicMs()), FAULT_EVERY_MS + 100)
  await direct(
    { crew, chronicle, handOvers },
    {
      ...{ workers: 3, faultEveryMs: FAULT_EVERY_MS, durationMs: FAULT_EVERY_MS + 500, ttlMs: 100 },
      signal: new AbortController().signal,
    },
  )
  expect(struck).toEqual([1])
  expect(hired).toBe(4)
  expect(handOvers.after('kill')).toEqual([])
})
