// A process that takes and releases one key until it is told to end. It writes every turn into a record that all
// contenders share. Appending a line is one step, so the record shows the true order of events.
import { appendFileSync } from 'node:fs'
import type { Wake } from '../../../../src/contract/store.ts'
import { sqliteStore } from '../../../../src/stores/sqlite/index.ts'
import { ticket } from '../tickets.ts'

const [path = '', record = ''] = process.argv.slice(2)
const store = sqliteStore(path)
const woken = new Map<string, () => void>()
let ending = false
process.once('message', () => {
  ending = true
})
await store.listen?.((wake: Wake) => {
  if (wake.tag !== 'all') woken.get(wake.id)?.()
})

for (let turn = 0; !ending; turn += 1) {
  const mine = ticket({ ttlMs: 2_500, acceptMs: 2_500, patienceMs: 5_000 })
  const fence = await held(mine)
  if (fence === undefined) continue
  appendFileSync(record, `enter ${fence} ${process.pid}\n`)
  appendFileSync(record, `leave ${fence} ${process.pid}\n`)
  await store.release({ key: mine.key, id: mine.id, cancel: false })
  // Messages arrive only when the event loop turns.
  if (turn % 8 === 0) await new Promise((resolve) => setImmediate(resolve))
}
await store.close()
process.disconnect()

async function held(mine: ReturnType<typeof ticket>): Promise<bigint | undefined> {
  let answer: Awaited<ReturnType<typeof store.acquire>> | undefined = await store.acquire(mine)
  while (answer?.tag === 'queued') {
    await wokenOrAfter(mine.id, answer.askAgainMs)
    const [renewed] = await store.renew([mine])
    answer = renewed?.tag === 'queued' ? { ...renewed, ahead: 0 } : renewed
  }
  return answer?.tag === 'held' ? answer.fence : undefined
}

function wokenOrAfter(id: string, ms: number): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer)
      woken.delete(id)
      resolve()
    }
    const timer = setTimeout(done, ms)
    woken.set(id, done)
  })
}
