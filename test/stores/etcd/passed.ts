import { until } from '../../servers/until.ts'

/** Resolves when this much time is over. It is for tests of what silence does. */
export async function passed(ms: number): Promise<void> {
  const from = performance.now()
  await until(`${ms} ms have passed`, () => performance.now() - from > ms, {
    withinMs: ms + 60_000,
    everyMs: 100,
  })
}
