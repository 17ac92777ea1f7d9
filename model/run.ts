/**
 * Checks the models of this folder with Spin: `npm run model -- [--full] [--json]`.
 *
 * Prints a table of the properties, and one of the planted errors with the counter-examples that were found. `--full` searches larger
 * worlds, for twenty minutes or so, and plants nothing. Exits with 1 if a property does not hold, if a search was not
 * complete, or if a planted error was not found.
 */
import { parseArgs } from 'node:util'
import { table } from '../src/cli/table.ts'
import { WORLDS } from './checks.ts'
import { type Noticed, notice, type Verified, verify } from './verify.ts'

process.exitCode = await main()

async function main(): Promise<number> {
  const { full, json } = options()
  const verified: Verified[] = []
  const noticed: Noticed[] = []
  for (const world of WORLDS) {
    tell(`${world.name} …`)
    verified.push(await verify(world, { full }))
    for (const property of full ? [] : world.properties)
      for (const plant of property.plants) noticed.push(await notice(world, property, plant))
  }
  process.stdout.write(
    json ? `${JSON.stringify(summary(verified, noticed), null, 2)}\n` : `${text(verified, noticed)}\n`,
  )
  return [...verified, ...noticed].every(({ isFine }) => isFine) ? 0 : 1
}

function options(): { readonly full: boolean; readonly json: boolean } {
  try {
    const { values } = parseArgs({
      options: { full: { type: 'boolean', default: false }, json: { type: 'boolean', default: false } },
    })
    return values
  } catch (error) {
    tell((error as Error).message)
    process.exit(64)
  }
}

function text(verified: readonly Verified[], noticed: readonly Noticed[]): string {
  const properties = verified.flatMap(({ world, found, isFine }) =>
    world.properties.map(({ name }) => [
      name,
      world.name,
      found.states.toLocaleString('en'),
      found.seconds.toFixed(1),
      isFine ? 'holds, search complete' : (found.violation ?? 'search not complete'),
    ]),
  )
  const plants = noticed.map(({ world, property, plant, found, isFine }) => [
    plant.name,
    `${property.name} (${world.name})`,
    found.states.toLocaleString('en'),
    isFine
      ? `found, ${found.depth} steps`
      : `NOT FOUND${found.violation === null ? '' : `: ${found.violation}`}`,
  ])
  const lines = [
    ...table(
      [
        { title: 'property' },
        { title: 'world' },
        { title: 'states', align: 'right' },
        { title: 'seconds', align: 'right' },
        { title: 'result' },
      ],
      properties,
    ),
  ]
  if (plants.length > 0)
    lines.push(
      '',
      ...table(
        [
          { title: 'planted error' },
          { title: 'breaks' },
          { title: 'states', align: 'right' },
          { title: 'counter-example' },
        ],
        plants,
      ),
    )
  return lines.join('\n')
}

function summary(verified: readonly Verified[], noticed: readonly Noticed[]): object {
  return {
    properties: verified.flatMap(({ world, found, isFine }) =>
      world.properties.map(({ name, says }) => ({
        property: name,
        says,
        world: world.name,
        isFine,
        ...found,
      })),
    ),
    planted: noticed.map(({ world, property, plant, found, isFine }) => ({
      planted: plant.name,
      says: plant.says,
      property: property.name,
      world: world.name,
      isFine,
      ...found,
    })),
  }
}

function tell(line: string): void {
  process.stderr.write(`${line}\n`)
}
