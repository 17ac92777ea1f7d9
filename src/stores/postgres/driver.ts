import type { Driver } from '../driver.ts'
import { openPostgres } from './open.ts'

export const driver: Driver = {
  open: (url, options) => openPostgres(url, options),
  async diagnose(url, options) {
    const { diagnosePostgres } = await import('./doctor.ts')
    return diagnosePostgres(url, options)
  },
}
