import { expect, test } from 'vitest'
import { createLocks } from '../../../src/index.ts'
import { etcdStore } from '../../../src/stores/etcd/index.ts'
import { base64, startEtcd } from '../../servers/etcd-server.ts'

test('a key to which another program has written is not shown as free, and a listing leaves it out', async () => {
  await using server = await startEtcd()
  const locks = createLocks(etcdStore({ endpoints: [server.url] }))
  const held = await locks.acquire('neighbour')
  await server.call('/v3/kv/put', { key: base64('holdfast/tickets/bad id'), value: base64('apples') })
  for (const name of ['neighbour', 'neighbours', 'n'])
    await server.call('/v3/kv/put', { key: base64(`holdfast/tickets/${name}`), value: base64('apples') })
  await expect(locks.peek('bad')).rejects.toMatchObject({
    code: 'store-refused',
    message: expect.stringContaining('used by something else'),
  })
  const seen: string[] = []
  for await (const { key } of locks.inspect()) seen.push(key)
  expect(seen).toEqual(['neighbour'])
  await held.release()
  await locks.close()
})
