import { afterAll, beforeAll, describe, test } from 'vitest'
import { etcdStore } from '../../../src/stores/etcd/index.ts'
import { base64, type EtcdServer, startEtcd } from '../../servers/etcd-server.ts'
import { conformanceCases } from '../conformance-cases.ts'

let server: EtcdServer
beforeAll(async () => {
  server = await startEtcd()
})
afterAll(() => server.close())

describe('the etcd store keeps the contract', () => {
  const cases = conformanceCases({
    open: () => etcdStore({ endpoints: [server.url] }),
    expiresUnasked: true,
    leftovers: (prefix) => keysLike(prefix),
  })
  for (const { name, run } of cases) test(name, run)
})

async function keysLike(part: string): Promise<string[]> {
  const all = { key: base64('\0'), range_end: base64('\0'), keys_only: true }
  const { kvs = [] } = (await server.call('/v3/kv/range', all)) as { kvs?: { key: string }[] }
  return kvs.map(({ key }) => Buffer.from(key, 'base64').toString()).filter((key) => key.includes(part))
}
