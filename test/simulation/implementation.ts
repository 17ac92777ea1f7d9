import { Engine } from '../../src/engine/engine.ts'
import { Locks } from '../../src/primitives/locks.ts'
import { parseSettings, TAKES } from '../../src/primitives/options.ts'
import { memoryStore } from '../../src/stores/memory/memory-store.ts'

/** The code under test. The checkers know nothing else of it, so a copy with a mistake can take its place. */
export interface Implementation {
  readonly Engine: typeof Engine
  readonly Locks: typeof Locks
  readonly memoryStore: typeof memoryStore
  readonly parseSettings: typeof parseSettings
  readonly TAKES: typeof TAKES
}

export const holdfast: Implementation = { Engine, Locks, memoryStore, parseSettings, TAKES }

/** The modules that these names come from, below the folder of the sources. */
export const MODULES = [
  'engine/engine',
  'primitives/locks',
  'primitives/options',
  'stores/memory/memory-store',
] as const

/** The implementation from another folder, whose modules end in `.js`. */
export async function implementationIn(folder: string): Promise<Implementation> {
  const modules = await Promise.all(MODULES.map((name) => import(`${folder}/${name}.js`)))
  return Object.assign({}, ...modules) as Implementation
}
