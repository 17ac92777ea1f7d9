import type { Driver } from '../driver.ts'
import { openEtcd } from './open.ts'

export const driver: Driver = {
  open: (url) => openEtcd(url),
  async diagnose(url) {
    const { diagnoseEtcd } = await import('./doctor.ts')
    return diagnoseEtcd(url)
  },
}
