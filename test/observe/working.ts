import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { Registry } from 'prom-client'
import { connect } from '../../src/index.ts'
import { measureWork } from '../../src/observe/prometheus/index.ts'
import { createSchedule } from '../../src/schedule/index.ts'
import { createLockWorker } from '../../src/worker/index.ts'

/**
 * A process whose work goes wrong, and that answers GET with its metrics. Its argument: `fails`, a schedule whose runs fail;
 * `overlaps`, one whose runs last longer than until the next tick; `works`, one whose runs end well; `worker`, a lock worker whose work cannot start.
 */
const [role = ''] = process.argv.slice(2)
const registry = new Registry()
measureWork({ registry })
const locks = await connect('memory:')
const schedule = createSchedule(locks, { onError: () => {} })
switch (role) {
  case 'fails':
    schedule.add('mails', '* * * * * *', () => {
      throw new Error('broken')
    })
    break
  case 'overlaps':
    schedule.add('mails', '* * * * * *', () => pause(2500))
    break
  case 'works':
    schedule.add('mails', '* * * * * *', () => {})
    break
  case 'worker':
    createLockWorker(locks, 'orders', {
      start: () => {
        throw new Error('broken')
      },
      stop: () => {},
      backoff: 10,
      maxBackoff: 10,
      onError: () => {},
    }).start()
    break
  default:
    throw new Error(`Expected a role, got ${JSON.stringify(role)}.`)
}
schedule.start()
const server = createServer(async (_, response) => {
  response.end(await registry.metrics())
})
server.listen(0, '127.0.0.1', () => process.stdout.write(`${(server.address() as AddressInfo).port}\n`))
