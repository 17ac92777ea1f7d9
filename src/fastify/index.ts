export { holdfast } from './plugin.ts'
