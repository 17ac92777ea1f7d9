import type { Driver } from '../driver.ts'
import { openEtcd } from './open.ts'

export const driver: Driver = {
  open: (url, options) => openEtcd(url, options),
  async diagnose(url, options) {
    const { diagnoseEtcd } = await import('./doctor.ts')
    return diagnoseEtcd(url, options)
  },
}
