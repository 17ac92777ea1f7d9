import type { Plant, Property, World } from './checks.ts'
import { type Found, search } from './spin.ts'

/** A world without a planted error. */
export interface Verified {
  readonly world: World
  readonly found: Found
  readonly isFine: boolean
}

/** A planted error, looked for with the property that it breaks. */
export interface Noticed {
  readonly world: World
  readonly property: Property
  readonly plant: Plant
  readonly found: Found
  readonly isFine: boolean
}

export async function verify(world: World, { full }: { readonly full: boolean }): Promise<Verified> {
  const { file, kind, properties } = world
  const sizes = (full ? world.full : undefined) ?? world.defines
  const checks = properties.map(({ name }) => `CHECK_${name}`)
  const found = await search({
    file,
    kind,
    defines: [...sizes, ...checks],
    isShort: false,
    mostSteps: full ? 10_000_000 : 1_000_000,
  })
  return { world, found, isFine: found.isComplete && found.violation === null }
}

export async function notice(world: World, property: Property, plant: Plant): Promise<Noticed> {
  const { file, kind } = world
  // The later one counts.
  const sizes = [
    ...new Map([...world.defines, ...(plant.defines ?? [])].map((one) => [one.split('=')[0], one])).values(),
  ]
  const defines = [...sizes, `CHECK_${property.name}`, `PLANT_${plant.name}`]
  const found = await search({ file, kind, defines, isShort: true, mostSteps: 1_000_000 })
  const expected = kind === 'always' ? /^assertion violated/ : /^acceptance cycle/
  return { world, property, plant, found, isFine: expected.test(found.violation ?? '') }
}
