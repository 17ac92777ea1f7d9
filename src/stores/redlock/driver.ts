import { readOnlyStore } from '../../base/read-only.ts'
import type { Driver } from '../driver.ts'
import { openRedlock } from './open.ts'

export const driver: Driver = {
  async open(url, { readOnly }) {
    const store = await openRedlock(url)
    return readOnly ? readOnlyStore(store) : store
  },
  async diagnose(url) {
    const { diagnoseRedlock } = await import('./doctor.ts')
    return diagnoseRedlock(url)
  },
}
