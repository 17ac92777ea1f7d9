/**
 * Asks again until the answer is neither `undefined` nor `false`. Rejects with `what` once `withinMs` have passed. The
 * default only ends a test that hangs. It is no statement about speed: a busy machine needs seconds for what takes no
 * time otherwise.
 */
export async function until<T>(
  what: string,
  ask: () => T | Promise<T>,
  { withinMs = 60_000, everyMs = 10 }: { withinMs?: number; everyMs?: number } = {},
): Promise<Exclude<T, undefined | false>> {
  const giveUpAt = performance.now() + withinMs
  for (;;) {
    const answer = await ask()
    if (answer !== undefined && answer !== false) return answer as Exclude<T, undefined | false>
    if (performance.now() > giveUpAt) throw new Error(`Waited ${withinMs} ms in vain until ${what}`)
    await new Promise((resolve) => setTimeout(resolve, everyMs))
  }
}
