import { expect, test, vi } from 'vitest'
import { HOSTILE_VALUES } from '../base/hostile-values.ts'
import { settled } from '../engine/fake-clock.ts'
import { Stage } from './stage.ts'

test.each(HOSTILE_VALUES)(
  'work and listeners that throw or reject with %s end neither the schedule nor the process',
  async (_, make) => {
    const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    try {
      const hostile = (): never => {
        throw make()
      }
      const stage = new Stage()
      let runs = 0
      for (const [name, thrown] of Object.entries({ sync: hostile, async: async () => hostile() })) {
        const a = stage.member('a', { onRun: thrown, onError: thrown })
        a.schedule.add(name, '* * * * *', () => {
          runs += 1
          return thrown()
        })
        a.schedule.start()
      }
      await stage.clock.advance(3 * 60_000)
      await settled()
      expect(runs).toBeGreaterThanOrEqual(4)
      expect(warn.mock.calls.map(([message]) => message)).toContain('`onError` of a schedule itself failed.')
    } finally {
      warn.mockRestore()
    }
  },
)
