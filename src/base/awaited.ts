/**
 * Keeps the process alive until the work is done. Sockets and timers of a store do not. Without this, a program that
 * awaits the work at its top level would end in the middle of it, with exit code 13 and without a word.
 */
export async function awaited<T>(work: () => T | Promise<T>): Promise<T> {
  const alive = setInterval(() => {}, 60_000)
  try {
    return await work()
  } finally {
    clearInterval(alive)
  }
}
