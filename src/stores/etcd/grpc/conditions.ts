import { StoreError } from '../../../errors.ts'
import type { Compare } from './messages.ts'

/** The key is not there. */
export function isNew(key: string): Compare {
  return { that: 'created', is: 'equal', key, revision: 0 }
}

/** The range has no keys. etcd gives such a range the create revision 0. */
export function isEmpty(range: { readonly key: string; readonly end: string }): Compare {
  return { that: 'created', is: 'equal', ...range, revision: 0 }
}

/** No key of the range was written after this revision. Some may have been deleted. */
export function isOlder(range: { readonly key: string; readonly end: string }, revision: number): Compare {
  return { that: 'modified', is: 'less', ...range, revision: revision + 1 }
}

/** The key was written last at this revision. */
export function isAt(key: string, revision: number): Compare {
  return { that: 'modified', is: 'equal', key, revision }
}

export function tooBusy(key: string): StoreError {
  const message = `Holdfast tried ${MOST_TRIES} times to change the etcd keys of ${JSON.stringify(key)}, and other processes changed them first each time. Try again. If this goes on, let fewer processes compete for this key.`
  return new StoreError('store-unavailable', message, { key })
}

/** How often a transaction is tried again whose conditions others have made false. */
export const MOST_TRIES = 60
