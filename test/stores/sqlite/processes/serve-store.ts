// A process with a sqlite store. It carries out each message { number, verb, request }, and answers with the number.
import { sqliteStore } from '../../../../src/stores/sqlite/index.ts'
import { openDatabase } from '../../../../src/stores/sqlite/sqlite-engine.ts'

const [path = ''] = process.argv.slice(2)
const store = sqliteStore(path)

process.on('message', async ({ number, verb, request }: { number: number; verb: string; request: never }) => {
  try {
    process.send?.({ number, answer: await answer(verb, request) })
  } catch (error) {
    process.send?.({ number, error: String(error) })
  }
})

async function answer(verb: string, request: never): Promise<unknown> {
  if (verb === 'acquire' || verb === 'renew' || verb === 'release' || verb === 'evict')
    return store[verb](request)
  if (verb === 'stopInTransaction') return stopInTransaction()
  await store.listen?.((wake) => {
    if (wake.tag !== 'all')
      process.send?.({ woken: wake.id, fence: 'fence' in wake ? wake.fence : undefined })
  })
  return undefined
}

/** The process stops between two statements: the write lock is taken, and something is written. */
function stopInTransaction(): void {
  const database = openDatabase(path, undefined)
  database.exec(
    `PRAGMA busy_timeout = 5000; BEGIN IMMEDIATE; DELETE FROM holder; UPDATE meta SET clock_us = 0`,
  )
  process.kill(process.pid, 'SIGSTOP')
}
