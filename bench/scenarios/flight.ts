import type { OpenAdapter } from '../adapter.ts'
import type { Candidate } from '../scenario.ts'

const IN_FLIGHT = 64

/** 64 tasks, each taking and releasing a free key of its own: cycles per second. */
export function flight(name: string, open: OpenAdapter, cycles: number): Candidate {
  return {
    name,
    async measure(surroundings, { quick }) {
      const adapter = await open(surroundings)
      const each = Math.ceil((quick ? cycles / 10 : cycles) / IN_FLIGHT)
      const work = async (task: number, count: number): Promise<void> => {
        for (let turn = 0; turn < count; turn += 1) await (await adapter.acquire(`flight:${task}`))()
      }
      const tasks = Array.from({ length: IN_FLIGHT }, (_, task) => task)
      await Promise.all(tasks.map((task) => work(task, Math.ceil(each / 5))))
      const startedAt = performance.now()
      await Promise.all(tasks.map((task) => work(task, each)))
      const tookMs = performance.now() - startedAt
      await adapter.close()
      return [((each * IN_FLIGHT) / tookMs) * 1000]
    },
  }
}
