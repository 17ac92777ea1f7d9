import { loadDial } from '../../src/stores/etcd/grpc/connection.ts'
import { Member } from '../../src/stores/etcd/grpc/member.ts'
import {
  encoded,
  LEASE_GRANT,
  type Method,
  TXN,
  type TxnReply,
  type TxnRequest,
  WATCH,
} from '../../src/stores/etcd/grpc/messages.ts'
import { MessageReader } from '../../src/stores/etcd/grpc/wire.ts'
import type { Adapter, Surroundings } from '../adapter.ts'

/**
 * The baseline. Each ticket has a key under one lease. A transaction makes the key and also reads the other tickets. The
 * deletions of one watch are the hand-overs. There is no loss signal and no second request, and it watches one key at a
 * time.
 */
export async function openBareEtcd({ etcdUrl }: Surroundings): Promise<Adapter> {
  const member = new Member({ url: etcdUrl, tls: {}, dial: await loadDial() })
  // Its connection does not keep the process.
  const alive = setInterval(() => {}, 60_000)
  const lease = 1 + Math.floor(Math.random() * 2 ** 40)
  await ask(LEASE_GRANT, { id: lease, ttl: 600 })
  const queue = new Map<string, { readonly revision: number; wake?: () => void }>()
  let watched: string | undefined
  let count = 0

  async function ask<Request, Reply>(method: Method<Request, Reply>, request: Request): Promise<Reply> {
    const message = encoded(method, request)
    const bytes = await member.request({ path: method.path, message, token: '' }, 10_000)
    return method.decode(new MessageReader(bytes))
  }

  function transact(request: TxnRequest): Promise<TxnReply> {
    return ask(TXN, request)
  }

  function watch(key: string, end: string, from: number): void {
    watched = key
    const onMessage = (bytes: Buffer) => {
      for (const { deleted, pair } of WATCH.decode(new MessageReader(bytes)).events) {
        if (deleted) queue.delete(pair.key)
        else if (!queue.has(pair.key)) queue.set(pair.key, { revision: pair.modRevision })
      }
      const [first] = queue.values()
      first?.wake?.()
    }
    const stream = member.openStream({ path: WATCH.path, token: '' }, { onMessage, onEnd() {} })
    stream.send(encoded(WATCH, { tag: 'create', id: 1, range: { key, end }, from }))
  }

  return {
    async acquire(key) {
      count += 1
      const name = `${key}/${process.pid}-${count}`
      const [start, end] = [`${key}/`, `${key}0`]
      const { revision, ranges } = await transact({
        when: [{ that: 'created', is: 'equal', key: name, revision: 0 }],
        apply: [
          ...(watched === start ? [] : [{ tag: 'range', key: start, end } as const]),
          { tag: 'put', key: name, value: '{"units":1}', lease },
        ],
        otherwise: [{ tag: 'range', key: name }],
      })
      const others = watched === start || ranges[0] === undefined ? [] : ranges[0].pairs
      const isFree = watched !== start && others.length === 0
      if (!isFree) {
        if (watched !== start) {
          for (const pair of others) queue.set(pair.key, { revision: pair.createRevision })
          watch(start, end, revision)
        }
        await new Promise<void>((wake) => {
          queue.set(name, { revision, wake })
          if (queue.keys().next().value === name) wake()
        })
      }
      return async () => {
        await transact({
          when: [{ that: 'created', is: 'equal', key: name, revision }],
          apply: [{ tag: 'delete', key: name }],
          otherwise: [],
        })
      }
    },
    async close() {
      clearInterval(alive)
      member.close()
    },
  }
}
