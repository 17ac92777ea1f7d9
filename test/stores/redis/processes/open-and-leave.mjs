// Opens a store, holds a key, waits for it once more, and comes to its end without closing anything.
import { createLocks } from '../../../../src/index.ts'
import { openRedis } from '../../../../src/stores/redis/index.ts'

const [, , url = ''] = process.argv
try {
  const locks = createLocks(await openRedis(url))
  const lease = await locks.acquire('key')
  for await (const room of locks.inspect()) if (room.key !== 'key') throw new Error(room.key)
  setTimeout(() => locks.acquire('key', { wait: '5s' }).catch((error) => console.log(error.code)), 0)
  console.log(lease.state)
} catch (error) {
  console.log(error.name, error.code, error.message)
}
