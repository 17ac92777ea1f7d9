// One server of a fleet: a worker, and a journal that all servers write into while they work.
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
      // Checks the lease, as work does before a step that cannot be taken back.
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

// The process stops itself, so it never stops between reading its lease and writing. Fences guard against such a stop,
// and this test has none.
process.on('message', () => process.kill(process.pid, 'SIGSTOP'))
process.on('disconnect', () => process.exit(1))
