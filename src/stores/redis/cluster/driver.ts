import type { Driver } from '../../driver.ts'
import { openRedisCluster } from './open.ts'

export const driver: Driver = {
  open: (url) => openRedisCluster(url),
  async diagnose(url) {
    const { diagnoseRedisCluster } = await import('./doctor.ts')
    return diagnoseRedisCluster(url)
  },
}
