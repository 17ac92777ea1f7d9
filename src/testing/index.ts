/**
 * What tests a store: the conformance suite, the comparison with the law, and a simulated world. See [Testing](../../docs/testing.md), [Simulation](../../docs/simulation.md).
 *
 * @module
 */
export { type ConformanceCase, storeConformance } from './conformance.ts'
export type { ConformanceSubject } from './conformance-scene.ts'
export { type LawComparisonOptions, type LawComparisonReport, lawComparison } from './law-comparison.ts'
export { type Random, seededRandom } from './random.ts'
export { SimulatedClock, type SimulatedClockOptions } from './simulated-clock.ts'
export {
  calmWeather,
  type SimulatedLink,
  SimulatedNetwork,
  type SimulatedNetworkOptions,
  type Weather,
} from './simulated-network.ts'
export { SimulatedProcess, type SimulatedProcessOptions } from './simulated-process.ts'
export {
  type Reception,
  SimulatedServer,
  type SimulatedServerOptions,
  type StoreAnswer,
  type StoreCall,
  type Subscription,
} from './simulated-server.ts'
export { SimulatedTime } from './simulated-time.ts'
