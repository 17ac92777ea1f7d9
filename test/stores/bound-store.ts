import type { Store } from '../../src/contract/store.ts'

/** The store with its methods as properties, so that a test can leave some out or put others in their place. */
export function boundStore(store: Store): Store {
  return {
    name: store.name,
    acquire: (ticket) => store.acquire(ticket),
    renew: (tickets) => store.renew(tickets),
    release: (request) => store.release(request),
    inspect: (request) => store.inspect(request),
    evict: (request) => store.evict(request),
    ...(store.listen && { listen: store.listen.bind(store) }),
    close: () => store.close(),
  }
}
