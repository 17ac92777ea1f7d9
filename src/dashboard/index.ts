export { createDashboard, type Dashboard } from './dashboard.ts'
export type { DashboardOptions } from './options.ts'
