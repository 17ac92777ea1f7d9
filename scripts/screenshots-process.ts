// One process of the shop that scripts/screenshots.ts takes pictures of.
import { setTimeout as pause } from 'node:timers/promises'
import { connect } from '../src/index.ts'
import { createPartition } from '../src/partition/index.ts'

const [role = '', url = ''] = process.argv.slice(2)
const locks = await connect(url, { label: `${role}-${process.pid % 90}` })
const turns = ['stock:book', 'stock:lamp', 'cart:1', 'cart:2']
const forever = (): Promise<never> => new Promise(() => {})

/** The work on every fifth key does not end, so these keys are moving as long as the pictures are taken. */
function share({ name = 'customers', partitions }: { name?: string; partitions: number }): void {
  const stop = ({ key }: { key: number }): unknown => (key % 5 === 0 ? forever() : undefined)
  const onError = (): void => {}
  createPartition(locks, name, { partitions, grace: '1h', start: () => {}, stop, onError }).start()
}

switch (role) {
  case 'web':
    void locks.acquire(`session:${process.pid}`)
    void locks.semaphore('mailer:slots', 4).acquire()
    for (;;) {
      const key = turns[Math.floor(Math.random() * turns.length)] ?? ''
      await locks.withLock(key, { wait: '1h' }, () => pause(200 + Math.random() * 1500))
    }
  case 'worker':
    void locks.acquire('invoice:42', { wait: '1h' })
    await locks.election('scheduler').campaign({ value: `http://worker-${process.pid}:8080` }, forever)
    break
  case 'share':
    share({ partitions: 64 })
    share({ partitions: 1000, name: 'devices' })
    await forever()
    break
  case 'share-later':
    await pause(10_000)
    share({ partitions: 64 })
    await forever()
    break
  case 'doomed':
    for (const key of ['import:5', 'import:6', 'import:7']) await locks.acquire(key, { ttl: '4s' })
    await forever()
    break
  case 'frozen':
    await locks.acquire('report:nightly', { ttl: '40s' })
    await forever()
    break
  default:
    throw new Error(`Expected a role, got ${JSON.stringify(role)}.`)
}
