import type { Store } from '../../src/contract/index.ts'

/** The methods of a store in this process, as properties of a new object, so that a test can replace some of them. */
export function methodsOf(store: Store): Store {
  return {
    name: store.name,
    inProcess: true,
    acquire: (ticket, atMs) => store.acquire(ticket, atMs),
    renew: (tickets, atMs) => store.renew(tickets, atMs),
    release: (request, atMs) => store.release(request, atMs),
    listen: (onWake) => store.listen?.(onWake) as () => void,
    inspect: (request) => store.inspect(request),
    evict: (request) => store.evict(request),
    close: () => store.close(),
  }
}
