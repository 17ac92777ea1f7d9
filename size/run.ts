/**
 * Plays what no test machine can hold on simulated time: `npm run size`.
 *
 * Runs for minutes, on one core. Writes size/results.json, the plots docs/images/size-*.svg and docs/size.md.
 */
import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { pageOf, plotsOf, type Results } from './page.ts'
import { crowd, fleet, year } from './scenarios.ts'

const root = fileURLToPath(new URL('../', import.meta.url))

const crowds: Results['crowds'][number][] = []
for (const waiters of [100, 1_000, 10_000, 100_000])
  crowds.push(tell(await crowd({ waiters, processes: 100, handOvers: 100 })))
const fleets = [tell(await fleet({ processes: 1_000, masters: 1, seconds: 60 }))]
for (const processes of [100, 1_000, 10_000])
  fleets.push(tell(await fleet({ processes, masters: 100, seconds: 60 })))
const results: Results = {
  date: new Date().toISOString().slice(0, 10),
  crowds,
  fleets,
  year: tell(await year({ days: 365, everySeconds: 300 })),
}
writeFileSync(`${root}size/results.json`, `${JSON.stringify(results, null, 2)}\n`)
for (const [name, svg] of await plotsOf(results)) writeFileSync(`${root}docs/images/${name}`, svg)
writeFileSync(`${root}docs/size.md`, pageOf(results))

function tell<T>(result: T): T {
  process.stderr.write(`${JSON.stringify(result)}\n`)
  return result
}
