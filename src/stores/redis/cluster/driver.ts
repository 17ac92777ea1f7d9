import type { Driver } from '../../driver.ts'
import { openRedisCluster } from './open.ts'

export const driver: Driver = {
  open: (url, options) => openRedisCluster(url, options),
  async diagnose(url, options) {
    const { diagnoseRedisCluster } = await import('./doctor.ts')
    return diagnoseRedisCluster(url, options)
  },
}
