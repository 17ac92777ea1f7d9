// One process that campaigns and reports its terms. While it leads, it writes into a journal of all candidates. It ends
// politely.
import { appendFileSync } from 'node:fs'
import { connect } from '../../src/index.ts'

const [url = '', journal = '', name = '', ttl = ''] = process.argv.slice(2)
const note = (...words: unknown[]) => appendFileSync(journal, `${words.join(' ')}\n`)
const tell = (what: string, fence: bigint) => process.send?.({ what, fence: String(fence) })
const locks = await connect(url, { label: name })
const end = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => end.abort())
// The process stops itself, so it never stops between reading its lease and writing. Fences guard against such a stop,
// and this test has none.
process.on('message', () => process.kill(process.pid, 'SIGSTOP'))
const abandoned = () => process.exit(1)
process.on('disconnect', abandoned)

const campaign = locks
  .election('service')
  .campaign({ ttl, value: name, signal: end.signal }, async (leadership) => {
    const { fence, signal } = leadership
    // The journal comes first, because the test may kill this process as soon as it hears of the term.
    note('start', fence, name)
    tell('leads', fence)
    const timer = setInterval(() => {
      // Checks the lease, as a leader does before a step that cannot be taken back.
      if (leadership.remainingMs > 0) note('work', fence, name)
    }, 5)
    if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve))
    // The work that has begun takes a moment to settle, and the process leads until then.
    await new Promise((resolve) => setTimeout(resolve, 20))
    clearInterval(timer)
    tell(signal.reason.code, fence)
  })
await campaign.catch((error: unknown) => {
  if (!end.signal.aborted) throw error
})
await locks.close()
// Otherwise the channel alone would keep the process alive.
process.off('disconnect', abandoned)
process.disconnect()
