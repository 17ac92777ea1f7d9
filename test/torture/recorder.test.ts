import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { Recorder } from '../../src/cli/torture/recorder.ts'

let folder: string
let history: Recorder<string>
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-recorder-'))
  history = new Recorder(join(folder, 'worker-1.jsonl'))
})
afterEach(() => {
  history.close()
  rmSync(folder, { recursive: true, force: true })
})

const HOUR = 3_600_000

test('a history that keeps its pace is not full at the end of the run', () => {
  for (let elapsedMs = 0; elapsedMs <= HOUR; elapsedMs += 60_000) {
    // A task begins only behind the pace, and then writes much at once.
    if (history.aheadMs({ elapsedMs, durationMs: HOUR }) <= 0) history.add('x'.repeat(2 ** 20))
  }
  expect(history.isFull).toBe(false)
  expect(history.aheadMs({ elapsedMs: HOUR, durationMs: HOUR })).toBeGreaterThan(-HOUR / 10)
})

test('a history is ahead of its pace by the time after which it is as long as it may be', () => {
  history.add('x'.repeat(3 * 2 ** 20))
  const pace = { elapsedMs: 300_000, durationMs: HOUR }
  expect(history.aheadMs(pace)).toBeCloseTo(HOUR / 4 - 300_000, -1)
  expect(history.aheadMs({ ...pace, elapsedMs: HOUR / 2 })).toBeLessThan(0)
})
