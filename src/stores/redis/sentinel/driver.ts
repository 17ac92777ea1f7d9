import type { Driver } from '../../driver.ts'
import { openRedisSentinel } from './open.ts'

export const driver: Driver = {
  open: (url) => openRedisSentinel(url),
  async diagnose(url) {
    const { diagnoseRedisSentinel } = await import('./doctor.ts')
    return diagnoseRedisSentinel(url)
  },
}
