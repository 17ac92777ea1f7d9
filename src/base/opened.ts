/**
 * The store, once it has answered; else it is closed. Keeps the process alive meanwhile, which the connections of a store do not:
 * a script that awaits this at its top level would otherwise end without a word, with exit code 13.
 */
export async function opened<S extends { close(): unknown }>(
  store: S,
  ask: (store: S) => unknown,
): Promise<S> {
  const alive = setInterval(() => {}, 60_000)
  try {
    await ask(store)
    return store
  } catch (error) {
    await store.close()
    throw error
  } finally {
    clearInterval(alive)
  }
}
