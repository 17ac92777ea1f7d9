// A process that takes keys in a file until one is refused, and prints how many it holds and why it got no more.
import { sqliteStore } from '../../../../src/stores/sqlite/index.ts'
import { ticket } from '../tickets.ts'

const [path = '', most = ''] = process.argv.slice(2)
const store = sqliteStore(path)
let held = 0
let code: unknown
while (code === undefined && held < Number(most)) {
  try {
    await store.acquire(ticket({ key: `key:${held}` }))
    held += 1
  } catch (error) {
    code = (error as { readonly code: string }).code
  }
}
await store.close()
console.log(JSON.stringify({ held, code }))
