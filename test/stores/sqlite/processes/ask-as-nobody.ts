// A process that asks for a key in each of the given files, as a user who owns nothing, and prints the answers.
import { sqliteStore } from '../../../../src/stores/sqlite/index.ts'
import { openDatabase } from '../../../../src/stores/sqlite/sqlite-engine.ts'
import { ticket } from '../tickets.ts'

// Loads SQLite while this process may still read the repository.
openDatabase(':memory:', undefined).close()
if (process.getuid?.() === 0) {
  process.setgid?.(65_534)
  process.setuid?.(65_534)
}
const told = []
for (const path of process.argv.slice(2)) {
  const store = sqliteStore(path)
  try {
    told.push(await store.acquire(ticket()))
  } catch (error) {
    const { code, message } = error as { readonly code: string; readonly message: string }
    told.push({ code, message })
  }
  await store.close()
}
process.send?.(told)
process.disconnect()
