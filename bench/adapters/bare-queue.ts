import type { Adapter } from '../adapter.ts'

/** The baseline in one process: a promise per holder, chained per key. No deadline, no abort, no fence. */
export async function openBareQueue(): Promise<Adapter> {
  const tails = new Map<string, Promise<void>>()
  return {
    async acquire(key) {
      const before = tails.get(key)
      let done: () => void = () => {}
      const mine = new Promise<void>((resolve) => {
        done = resolve
      })
      tails.set(key, mine)
      if (before !== undefined) await before
      return () => {
        if (tails.get(key) === mine) tails.delete(key)
        done()
      }
    },
    async close() {},
  }
}
