export { type HoldfastPluginOptions, holdfast } from './plugin.ts'
