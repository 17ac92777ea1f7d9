import type { Driver } from '../driver.ts'
import { openRedis } from './open.ts'

export const driver: Driver = {
  open: (url, options) => openRedis(url, options),
  async diagnose(url, options) {
    const { diagnoseRedis } = await import('./doctor.ts')
    return diagnoseRedis(url, options)
  },
}
