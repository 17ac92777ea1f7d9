import { awaited } from './awaited.ts'

/** The store, once it has answered; else it is closed. Keeps the process alive meanwhile. */
export async function opened<S extends { close(): unknown }>(
  store: S,
  ask: (store: S) => unknown,
): Promise<S> {
  return awaited(async () => {
    try {
      await ask(store)
      return store
    } catch (error) {
      await store.close()
      throw error
    }
  })
}
