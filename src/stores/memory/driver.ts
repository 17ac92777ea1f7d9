import { readOnlyStore } from '../../base/read-only.ts'
import { InvalidArgumentError } from '../../errors.ts'
import type { Driver } from '../driver.ts'
import { memoryStore } from './memory-store.ts'

export const driver: Driver = {
  async open(url, { readOnly }) {
    if (!/^memory:$/i.test(url)) {
      throw new InvalidArgumentError('Expected a `memory:` url to have nothing behind the colon, got more.')
    }
    return readOnly ? readOnlyStore(memoryStore()) : memoryStore()
  },
  async diagnose() {
    return [
      { check: 'sharing', verdict: 'ok', text: 'These locks are for this process alone, and end with it.' },
      { check: 'clock', verdict: 'ok', text: 'The clock is that of this process.' },
    ]
  },
}
