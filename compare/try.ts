/**
 * Plays one fault for one library in a process of its own, and prints what was seen as a line of JSON. Started by `run.ts`. The
 * process does not exit by itself: whether it can end is one of the things to see.
 */
import { faults } from './faults.ts'
import { libraries } from './libraries.ts'
import { stageFor } from './stage.ts'

const [faultId, index, portList = ''] = process.argv.slice(2)
const fault = faults.find(({ id }) => id === faultId)
const library = libraries[Number(index)]
if (fault === undefined || library === undefined) {
  throw new Error(`Expected a fault and the number of a library, got ${faultId} and ${index}.`)
}
const ports = portList
  .split(',')
  .filter((port) => port !== '')
  .map(Number)
const stage = await stageFor(library, ports)
const seen = await fault.run(stage)
for (const proxy of stage.proxies) await proxy.close()
process.stdout.write(`${JSON.stringify(seen ?? null)}\n`)
