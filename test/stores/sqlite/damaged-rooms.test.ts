import { join } from 'node:path'
import { expect, test } from 'vitest'
import { sqliteStore } from '../../../src/stores/sqlite/index.ts'
import { openDatabase } from '../../../src/stores/sqlite/sqlite-engine.ts'
import { fenceOf, ticket } from '../tickets.ts'
import { freshFolder } from './lock-folder.ts'

const folder = freshFolder()

test('a room with a made-up fence whose time is over does not fail the calls for other keys that sweep it', async () => {
  const path = join(folder, 'fence.db')
  const store = sqliteStore(path)
  await store.acquire(ticket({ key: 'damaged' }))
  await store.acquire(ticket({ key: 'overdue', ttlMs: 1 }))
  const stranger = openDatabase(path, undefined)
  stranger.exec(`update holder set fence = 9e999, expires_at = 0 where key = 'damaged'`)
  const neighbour = ticket({ key: 'neighbour' })
  const fence = fenceOf(await store.acquire(neighbour))
  for (let nth = 0; nth < 200; nth += 1) {
    const one = ticket({ key: `key-${nth}` })
    fenceOf(await store.acquire(one))
    await store.release({ key: one.key, id: one.id, cancel: false })
  }
  expect(await store.renew([neighbour])).toEqual([{ tag: 'held', fence }])
  // The sweep went on behind the damaged room.
  expect(stranger.prepare('select key from holder order by key').all()).toHaveLength(2)
  const renewal = async () => store.renew([ticket({ key: 'damaged' })])
  await expect(renewal()).rejects.toMatchObject({
    code: 'store-refused',
    key: 'damaged',
  })
  stranger.close()
  await store.close()
})

test('infinite units end only the calls for their key, and the file is used on', async () => {
  const path = join(folder, 'units.db')
  const store = sqliteStore(path)
  const terms = { key: 'damaged', units: 1, limit: 2 }
  const holders = [ticket(terms), ticket(terms)]
  for (const holder of holders) fenceOf(await store.acquire(holder))
  const neighbour = ticket({ key: 'neighbour' })
  const fence = fenceOf(await store.acquire(neighbour))
  const stranger = openDatabase(path, undefined)
  stranger.exec(`
    update holder set units = 9e999 where key = 'damaged';
    update crowd set units = 9e999 where key = 'damaged';
  `)
  const [holder] = holders
  const release = async () => store.release({ key: 'damaged', id: holder?.id ?? '', cancel: false })
  await expect(release()).rejects.toMatchObject({ code: 'store-refused', key: 'damaged' })
  // At once, and not only when the file has been looked at again.
  expect(await store.renew([neighbour])).toEqual([{ tag: 'held', fence }])
  fenceOf(await store.acquire(ticket({ key: 'fresh' })))
  stranger.close()
  await store.close()
})

test('a damaged room is not shown as free, and a listing leaves it out', async () => {
  const path = join(folder, 'listed.db')
  const store = sqliteStore(path)
  await store.acquire(ticket({ key: 'damaged' }))
  await store.acquire(ticket({ key: 'neighbour' }))
  const stranger = openDatabase(path, undefined)
  stranger.exec(`update holder set fence = 9e999 where key = 'damaged'`)
  const peek = async () => store.inspect({ prefix: 'damaged', exact: true, cursor: undefined, count: 1 })
  await expect(peek()).rejects.toMatchObject({ code: 'store-refused', key: 'damaged' })
  const { rooms } = await store.inspect({ prefix: '', cursor: undefined, count: 10 })
  expect(rooms.map(({ key }) => key)).toEqual(['neighbour'])
  stranger.close()
  await store.close()
})
