import type { Store } from '../../src/contract/store.ts'

/** The store with its methods as properties. So a test can leave some of them out, or replace them. */
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
