import type { Driver } from '../driver.ts'
import { openPostgres } from './open.ts'

export const driver: Driver = {
  open: (url) => openPostgres(url),
  async diagnose(url) {
    const { diagnosePostgres } = await import('./doctor.ts')
    return diagnosePostgres(url)
  },
}
