import { StoreError } from '../../../errors.ts'
import type { Compare } from './messages.ts'

/** Nobody has written the key, or what was written is deleted. */
export function isNew(key: string): Compare {
  return { that: 'created', is: 'equal', key, revision: 0 }
}

/** Of a range without keys etcd says that it was created at revision 0. */
export function isEmpty(range: { readonly key: string; readonly end: string }): Compare {
  return { that: 'created', is: 'equal', ...range, revision: 0 }
}

/** Nothing was written there after this revision; something may have been deleted. */
export function isOlder(range: { readonly key: string; readonly end: string }, revision: number): Compare {
  return { that: 'modified', is: 'less', ...range, revision: revision + 1 }
}

/** It is as it was written at this revision, by whomever. */
export function isAt(key: string, revision: number): Compare {
  return { that: 'modified', is: 'equal', key, revision }
}

export function tooBusy(key: string): StoreError {
  const message = `The etcd keys of ${JSON.stringify(key)} changed each time before they could be.`
  return new StoreError('store-unavailable', message, { key })
}

/** How often a transaction that was overtaken by others is tried again. */
export const MOST_TRIES = 60
