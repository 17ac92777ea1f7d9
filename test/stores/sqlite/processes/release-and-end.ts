// A process that takes a key, waits until another ticket waits for it, releases it and ends. It ends by itself, with an
// exit after the store is closed, or by a signal that leaves no time for anything. If a user is given, it runs as that
// user.
import { sqliteStore } from '../../../../src/stores/sqlite/index.ts'
import { openDatabase } from '../../../../src/stores/sqlite/sqlite-engine.ts'
import { until } from '../../../servers/until.ts'
import { ticket } from '../tickets.ts'

const [path = '', how, user] = process.argv.slice(2)
if (user !== undefined) {
  // Loads SQLite while this process may still read the repository.
  openDatabase(':memory:', undefined).close()
  process.setgid?.(Number(user))
  process.setuid?.(Number(user))
}
const store = sqliteStore(path)
const mine = ticket()
await store.acquire(mine)
process.send?.('held')
await until('somebody waits', async () => {
  const { rooms } = await store.inspect({ prefix: mine.key, cursor: undefined, count: 1 })
  return rooms[0]?.queue.length === 1
})
await store.release({ key: mine.key, id: mine.id, cancel: false })
if (how === 'kill') process.kill(process.pid, 'SIGKILL')
if (how === 'exit') {
  await store.close()
  process.exit()
}
process.send?.({ keepAlive: process.getActiveResourcesInfo() })
process.disconnect()
