// Opens a lock file while it has no file descriptor left, then with one, and so on until a ticket holds. Prints the errors in between.
import { closeSync, openSync } from 'node:fs'
import { sqliteStore } from '../../../../src/stores/sqlite/index.ts'
import { openDatabase } from '../../../../src/stores/sqlite/sqlite-engine.ts'
import { ticket } from '../tickets.ts'

const [path = ''] = process.argv.slice(2)
// Loads SQLite while there are descriptors.
openDatabase(':memory:', undefined).close()
// Standard output, too, is opened while there are descriptors.
process.stdout.write('')
const open: number[] = []
try {
  for (;;) open.push(openSync('/dev/null', 'r'))
} catch {}
const errors: unknown[] = []
for (let held = false; !held; ) {
  // A new one each time, because a store does not try again at once.
  const store = sqliteStore(path)
  try {
    const answer = await store.acquire(ticket({ key: `${errors.length}` }))
    held = answer.tag === 'held'
  } catch (error) {
    const { code, message } = error as Error & { readonly code: string }
    errors.push({ code, message })
    const last = open.pop()
    if (last === undefined) break
    closeSync(last)
  }
  await store.close()
}
process.stdout.write(JSON.stringify(errors))
