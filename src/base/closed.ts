import { StoreError } from '../errors.ts'

/** The error of every call after `close()`. `maker` makes another store: `redisStore()`. */
export function closedStoreError(maker: string): StoreError {
  return new StoreError('store-refused', `The store was closed. Open a new one with ${maker}.`)
}
