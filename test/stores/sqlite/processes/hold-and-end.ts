// A process that leaves everything open at its end: a held ticket, a queued one, a listener, the file.
import { sqliteStore } from '../../../../src/stores/sqlite/index.ts'
import { ticket } from '../tickets.ts'

const [path = ''] = process.argv.slice(2)
const store = sqliteStore(path)
await store.listen?.(() => {})
await store.acquire(ticket())
await store.acquire(ticket())
process.disconnect()
