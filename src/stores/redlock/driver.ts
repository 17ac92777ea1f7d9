import type { Driver } from '../driver.ts'
import { openRedlock } from './open.ts'

export const driver: Driver = {
  open: (url) => openRedlock(url),
  async diagnose(url) {
    const { diagnoseRedlock } = await import('./doctor.ts')
    return diagnoseRedlock(url)
  },
}
