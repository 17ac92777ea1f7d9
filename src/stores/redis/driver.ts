import type { Driver } from '../driver.ts'
import { openRedis } from './open.ts'

export const driver: Driver = {
  open: (url) => openRedis(url),
  async diagnose(url) {
    const { diagnoseRedis } = await import('./doctor.ts')
    return diagnoseRedis(url)
  },
}
