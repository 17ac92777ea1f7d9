import { StoreError } from '../errors.ts'

/** What a store answers after `close()`. `maker` makes another one: `redisStore()`. */
export function closedStoreError(maker: string): StoreError {
  return new StoreError('store-refused', `The store was closed. Open a new one with ${maker}.`)
}
