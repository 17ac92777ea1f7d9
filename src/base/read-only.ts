import type { Store } from '../contract/store.ts'
import { StoreError } from '../errors.ts'

/** A store for those who only look: every call that would change something is refused, and never sent. */
export function readOnlyStore(store: Store): Store {
  const refuse = (key: string | undefined): Promise<never> =>
    Promise.reject(new StoreError('store-refused', READ_ONLY, { key }))
  return {
    name: store.name,
    acquire: ({ key }) => refuse(key),
    renew: (tickets) => refuse(tickets[0]?.key),
    release: ({ key }) => refuse(key),
    evict: ({ key }) => refuse(key),
    inspect: (request) => store.inspect(request),
    caveats: () => store.caveats?.() ?? [],
    close: () => store.close(),
  }
}

/** Needs what every look needs, finds nobody, and changes nothing. */
export async function look(store: Pick<Store, 'inspect'>): Promise<void> {
  await store.inspect({ prefix: 'is anybody there', exact: true, cursor: undefined, count: 1 })
}

const READ_ONLY =
  'The store was opened with `readOnly`, so it can only be looked at. Open it without that option to take, give back or evict a key.'
