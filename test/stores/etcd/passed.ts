import { until } from '../../servers/until.ts'

/** For tests of what silence does: resolves when so much time is over. */
export async function passed(ms: number): Promise<void> {
  const from = performance.now()
  await until(`${ms} ms have passed`, () => performance.now() - from > ms, {
    withinMs: ms + 60_000,
    everyMs: 100,
  })
}
