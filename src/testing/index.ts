export { type ConformanceCase, storeConformance } from './conformance.ts'
export type { ConformanceSubject } from './conformance-scene.ts'
export { type LawComparisonOptions, type LawComparisonReport, lawComparison } from './law-comparison.ts'
export { type Random, seededRandom } from './random.ts'
