// One server of a fleet: a worker, and a journal that all of them write into while they work.
import { appendFileSync } from 'node:fs'
import { connect } from '../../src/index.ts'
import { createLockWorker } from '../../src/worker/index.ts'

const [url = '', journal = '', name = '', ttl = ''] = process.argv.slice(2)
const note = (...words: unknown[]) => appendFileSync(journal, `${words.join(' ')}\n`)
const locks = await connect(url, { label: name, ttl })

const worker = createLockWorker(locks, 'fleet', {
  start(lease, { signal }) {
    note('start', lease.fence, name)
    const timer = setInterval(() => {
      // As a worker would before a step that cannot be taken back.
      if (lease.remainingMs > 0) note('work', lease.fence, name)
    }, 5)
    signal.addEventListener('abort', () => clearInterval(timer))
  },
  stop: (reason, lease) => note('stop', lease.fence, name, reason),
  onError: (error) => process.send?.({ error: String(error) }),
  backoff: 100,
})
worker.subscribe(({ to }) => process.send?.({ state: to }))
worker.stopOn(['SIGINT', 'SIGTERM'])
worker.start()

// By itself, so that it is never stopped between looking at its lease and writing: that is what fences are for.
process.on('message', () => process.kill(process.pid, 'SIGSTOP'))
process.on('disconnect', () => process.exit(1))
