// One process that campaigns, says what becomes of it, writes into a journal of all of them while it leads, and ends politely.
import { appendFileSync } from 'node:fs'
import { connect } from '../../src/index.ts'

const [url = '', journal = '', name = '', ttl = ''] = process.argv.slice(2)
const note = (...words: unknown[]) => appendFileSync(journal, `${words.join(' ')}\n`)
const tell = (what: string, fence: bigint) => process.send?.({ what, fence: String(fence) })
const locks = await connect(url, { label: name })
const end = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => end.abort())
// By itself, so that it is never stopped between looking at its lease and writing: that is what fences are for.
process.on('message', () => process.kill(process.pid, 'SIGSTOP'))
const abandoned = () => process.exit(1)
process.on('disconnect', abandoned)

const campaign = locks
  .election('service')
  .campaign({ ttl, value: name, signal: end.signal }, async (leadership) => {
    const { fence, signal } = leadership
    // First, because the test may kill this process as soon as it is told.
    note('start', fence, name)
    tell('leads', fence)
    const timer = setInterval(() => {
      // As a leader would before a step that cannot be taken back.
      if (leadership.remainingMs > 0) note('work', fence, name)
    }, 5)
    if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve))
    // What it has begun takes a moment to settle, and it leads until then.
    await new Promise((resolve) => setTimeout(resolve, 20))
    clearInterval(timer)
    tell(signal.reason.code, fence)
  })
await campaign.catch((error: unknown) => {
  if (!end.signal.aborted) throw error
})
await locks.close()
// The channel alone would keep the process alive.
process.off('disconnect', abandoned)
process.disconnect()
