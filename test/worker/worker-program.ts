// One process of a test. The first argument names the workers in it; nothing else keeps the process alive.
import { connect } from '../../src/index.ts'
import { createLockWorker } from '../../src/worker/index.ts'

const say = (text: string) => process.stdout.write(`${text}\n`)
const locks = await connect('memory:')
process.on('warning', (warning) => say(`warning ${warning.name}`))

function workerOn(key: string, stopMs = 0) {
  const worker = createLockWorker(locks, key, {
    start: () => say(`start ${key}`),
    stop: async () => {
      say(`stop ${key}`)
      await new Promise((resolve) => setTimeout(resolve, stopMs))
      say(`stopped ${key}`)
    },
    grace: '5s',
  })
  worker.subscribe(({ to }) => say(`${key} is ${to}`))
  return worker
}

const programs: Record<string, () => Promise<void>> = {
  async 'one worker'() {
    const worker = workerOn('a', 300)
    worker.stopOn()
    worker.start()
  },
  async 'two workers'() {
    for (const [key, stopMs] of [
      ['a', 0],
      ['b', 300],
    ] as const) {
      const worker = workerOn(key, stopMs)
      worker.stopOn(['SIGTERM'])
      worker.start()
    }
  },
  async 'a handler of its own'() {
    const worker = workerOn('a')
    process.once('SIGTERM', async () => {
      await worker.stop()
      await locks.close()
      say('cleaned up')
      process.exitCode = 7
    })
    worker.stopOn(['SIGTERM'])
    worker.start()
  },
  async 'a package that listens'() {
    // Loads signal-exit, which removes lock files at the end of the process.
    const { lock } = await import('proper-lockfile')
    await lock(process.argv[3] ?? '', { realpath: false })
    const worker = workerOn('a', 300)
    worker.stopOn()
    worker.start()
  },
  async 'work that does not end'() {
    const worker = createLockWorker(locks, 'a', {
      start: () => say('a is working'),
      stop: () => new Promise(() => {}),
      onError: () => {},
      grace: 50,
    })
    worker.subscribe(({ to, lease }) => {
      if (to === 'working') void locks.evict('a', lease?.id ?? '', { reason: 'test' })
      // This timer does not keep the process alive.
      if (to === 'overdue') setTimeout(() => say('still here'), 200).unref()
    })
    worker.stopOn()
    worker.start()
  },
  async 'stopped by itself'() {
    const worker = workerOn('a')
    worker.stopOn()
    worker.start()
    process.once('SIGUSR2', () => worker.stop())
  },
}

await programs[process.argv[2] ?? '']?.()
