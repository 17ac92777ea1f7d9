// Waits for a key. When it is told to, it opens files until no file descriptor is left.
import { openSync } from 'node:fs'
import { createLocks } from '../../../../src/index.ts'
import { sqliteStore } from '../../../../src/stores/sqlite/index.ts'

const [path = ''] = process.argv.slice(2)
const locks = createLocks(sqliteStore(path), { ttl: '30s', wait: '10m' })
process.on('message', () => {
  try {
    for (;;) openSync('/dev/null', 'r')
  } catch {
    process.send?.('full')
  }
})
process.on('disconnect', () => process.exit(1))
await locks.acquire('key')
process.send?.('holds')
