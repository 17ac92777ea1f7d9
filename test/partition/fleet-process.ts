// One process of a partition, and a journal that all of them write into while they work.
import { appendFileSync } from 'node:fs'
import { connect } from '../../src/index.ts'
import { createPartition } from '../../src/partition/index.ts'

const [url = '', journal = '', name = '', ttl = '', keys = ''] = process.argv.slice(2)
const note = (...words: unknown[]) => appendFileSync(journal, `${words.join(' ')}\n`)
const locks = await connect(url, { label: name, ttl })

const partition = createPartition(locks, 'fleet', {
  partitions: Number(keys),
  start({ key, fence, lease, signal }) {
    note('start', key, fence, name)
    const timer = setInterval(() => {
      // Checks the lease, as work does before a step that cannot be taken back.
      if (lease.remainingMs > 0) note('work', key, fence, name)
    }, 20)
    signal.addEventListener('abort', () => clearInterval(timer))
  },
  stop: ({ key, fence, reason }) => note('stop', key, fence, name, reason),
  onError: (error, { key, during }) => process.send?.({ error: `${during} ${key} ${error}` }),
  backoff: 100,
})
const tell = () => process.send?.({ held: [...partition.held.keys()] })
partition.subscribe(tell)
partition.start()

process.on('SIGTERM', async () => {
  await partition.stop()
  await locks.close()
  process.exit()
})
// The process stops itself, so it never stops between reading its lease and writing. Fences guard against such a stop,
// and this test has none.
process.on('message', () => process.kill(process.pid, 'SIGSTOP'))
process.on('disconnect', () => process.exit(1))
