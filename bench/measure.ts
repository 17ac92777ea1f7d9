/** Measures one candidate of one scenario in this process, and prints the numbers as JSON. Started by `run.ts`. */
import { scenarios } from './scenarios.ts'

const [name, candidateName, redisPort, folder, mode, postgresUrl = '', etcdUrl = ''] = process.argv.slice(2)
const candidate = scenarios
  .find((scenario) => scenario.name === name)
  ?.candidates.find((one) => one.name === candidateName)
if (candidate === undefined || folder === undefined) {
  throw new Error(`Expected a scenario and one of its candidates, got ${name} and ${candidateName}.`)
}
const surroundings = { redisPort: Number(redisPort), postgresUrl, etcdUrl, folder }
const numbers = await candidate.measure(surroundings, { quick: mode === 'quick' })
process.stdout.write(`${JSON.stringify(numbers)}\n`, () => process.exit(0))
