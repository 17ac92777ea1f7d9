import type { Driver } from '../../driver.ts'
import { openRedisSentinel } from './open.ts'

export const driver: Driver = {
  open: (url, options) => openRedisSentinel(url, options),
  async diagnose(url, options) {
    const { diagnoseRedisSentinel } = await import('./doctor.ts')
    return diagnoseRedisSentinel(url, options)
  },
}
