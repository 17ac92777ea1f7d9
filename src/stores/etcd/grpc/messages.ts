import { type MessageReader, MessageWriter } from './wire.ts'

/**
 * The messages of etcd's API (etcdserverpb/rpc.proto, mvccpb/kv.proto) as far as the store uses them. Written by hand: a
 * dozen messages need no generator, and none of the packages that bring one.
 */
export interface Method<Request, Reply> {
  readonly path: string
  readonly encode: (request: Request, writer: MessageWriter) => void
  readonly decode: (reply: MessageReader) => Reply
}

export function encoded<Request>(method: Method<Request, unknown>, request: Request): Buffer {
  const writer = new MessageWriter()
  method.encode(request, writer)
  return writer.take()
}

export interface KeyValue {
  readonly key: string
  readonly createRevision: number
  readonly modRevision: number
  readonly value: string
  /** The lease it ends with. Exact if it was made by this library. */
  readonly lease: number
}

/** From `key` to `end`, without it; only `key` where there is no end. */
export interface KeyRange {
  readonly key: string
  readonly end?: string
}

export interface RangeRequest extends KeyRange {
  readonly limit?: number
  /** Only how many there are. */
  readonly counts?: boolean
}

export interface RangeReply {
  readonly pairs: readonly KeyValue[]
  readonly more: boolean
  readonly count: number
}

export type Compare = KeyRange &
  (
    | { readonly that: 'created'; readonly is: 'equal' | 'less'; readonly revision: number }
    | { readonly that: 'modified'; readonly is: 'equal' | 'less'; readonly revision: number }
    | { readonly that: 'value'; readonly is: 'equal'; readonly value: string }
  )

export type Operation =
  | ({ readonly tag: 'range' } & RangeRequest)
  | { readonly tag: 'put'; readonly key: string; readonly value: string; readonly lease: number }
  | { readonly tag: 'delete'; readonly key: string }

export interface TxnRequest {
  readonly when: readonly Compare[]
  readonly apply: readonly Operation[]
  readonly otherwise: readonly Operation[]
}

export interface TxnReply {
  readonly revision: number
  readonly succeeded: boolean
  /** One for each operation that was carried out; only ranges have something to say. */
  readonly ranges: readonly RangeReply[]
}

export const TXN: Method<TxnRequest, TxnReply> = {
  path: '/etcdserverpb.KV/Txn',
  encode(request, writer) {
    writer.messages(3, request.otherwise, (operation) => writeOperation(operation, writer))
    writer.messages(2, request.apply, (operation) => writeOperation(operation, writer))
    writer.messages(1, request.when, (compare) => writeCompare(compare, writer))
  },
  decode(reply) {
    let revision = 0
    let succeeded = false
    const ranges: RangeReply[] = []
    for (let field = reply.next(); field !== 0; field = reply.next()) {
      if (field === 1) revision = readRevision(reply.message())
      else if (field === 2) succeeded = reply.flag()
      else if (field === 3) ranges.push(readOperationReply(reply.message()))
      else reply.skip()
    }
    return { revision, succeeded, ranges }
  },
}

function writeCompare(compare: Compare, writer: MessageWriter): void {
  if (compare.end !== undefined) writer.text(64, compare.end)
  if (compare.that === 'created') writer.number(5, compare.revision)
  else if (compare.that === 'modified') writer.number(6, compare.revision)
  else writer.text(7, compare.value)
  writer.text(3, compare.key)
  writer.number(2, TARGETS[compare.that])
  writer.number(1, compare.is === 'less' ? 2 : 0)
}

const TARGETS = { created: 1, modified: 2, value: 3 } as const

function writeOperation(operation: Operation, writer: MessageWriter): void {
  switch (operation.tag) {
    case 'range':
      return writer.message(1, () => writeRange(operation, writer))
    case 'put':
      return writer.message(2, () => {
        writer.number(3, operation.lease)
        writer.text(2, operation.value)
        writer.text(1, operation.key)
      })
    case 'delete':
      return writer.message(3, () => writer.text(1, operation.key))
    default:
      operation satisfies never
  }
}

function writeRange(range: RangeRequest, writer: MessageWriter): void {
  writer.number(9, range.counts === true ? 1 : 0)
  writer.number(3, range.limit ?? 0)
  writer.text(2, range.end ?? '')
  writer.text(1, range.key)
}

function readOperationReply(reader: MessageReader): RangeReply {
  let range: RangeReply = NOTHING
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) range = readRange(reader.message())
    else reader.skip()
  }
  return range
}

const NOTHING: RangeReply = { pairs: [], more: false, count: 0 }

function readRange(reader: MessageReader): RangeReply {
  const pairs: KeyValue[] = []
  let more = false
  let count = 0
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 2) pairs.push(readKeyValue(reader.message()))
    else if (field === 3) more = reader.flag()
    else if (field === 4) count = reader.number()
    else reader.skip()
  }
  return { pairs, more, count }
}

function readKeyValue(reader: MessageReader): KeyValue {
  let key = ''
  let value = ''
  let createRevision = 0
  let modRevision = 0
  let lease = 0
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) key = reader.text()
    else if (field === 2) createRevision = reader.number()
    else if (field === 3) modRevision = reader.number()
    else if (field === 5) value = reader.text()
    else if (field === 6) lease = reader.number()
    else reader.skip()
  }
  return { key, value, createRevision, modRevision, lease }
}

function readRevision(header: MessageReader): number {
  let revision = 0
  for (let field = header.next(); field !== 0; field = header.next()) {
    if (field === 3) revision = header.number()
    else header.skip()
  }
  return revision
}

export interface LeaseReply {
  readonly id: number
  /** In seconds; 0 or less when there is no such lease (any more). */
  readonly ttl: number
}

export const LEASE_GRANT: Method<{ readonly id: number; readonly ttl: number }, LeaseReply> = {
  path: '/etcdserverpb.Lease/LeaseGrant',
  encode({ id, ttl }, writer) {
    writer.number(2, id)
    writer.number(1, ttl)
  },
  decode: readLease,
}

export const LEASE_KEEP_ALIVE: Method<{ readonly id: number }, LeaseReply> = {
  path: '/etcdserverpb.Lease/LeaseKeepAlive',
  encode({ id }, writer) {
    writer.number(1, id)
  },
  decode: readLease,
}

export const LEASE_TIME_TO_LIVE: Method<{ readonly id: number }, LeaseReply> = {
  path: '/etcdserverpb.Lease/LeaseTimeToLive',
  encode({ id }, writer) {
    writer.number(1, id)
  },
  decode: readLease,
}

/** Of three replies that are alike: header 1, id 2, TTL 3. */
function readLease(reader: MessageReader): LeaseReply {
  let id = 0
  let ttl = 0
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 2) id = reader.number()
    else if (field === 3) ttl = reader.number()
    else reader.skip()
  }
  return { id, ttl }
}

export type WatchRequest =
  | { readonly tag: 'create'; readonly id: number; readonly range: KeyRange; readonly from: number }
  | { readonly tag: 'cancel'; readonly id: number }

export interface WatchReply {
  readonly id: number
  readonly revision: number
  readonly canceled: boolean
  /** Set when what was asked for is no longer known: the first revision that is. */
  readonly compactRevision: number
  readonly cancelReason: string
  readonly events: readonly WatchEvent[]
}

export interface WatchEvent {
  readonly deleted: boolean
  /** Of a deletion: only the key, and the revision that deleted it. */
  readonly pair: KeyValue
}

export const WATCH: Method<WatchRequest, WatchReply> = {
  path: '/etcdserverpb.Watch/Watch',
  encode(request, writer) {
    if (request.tag === 'cancel') return writer.message(2, () => writer.number(1, request.id))
    writer.message(1, () => {
      writer.number(7, request.id)
      writer.number(3, request.from)
      writer.text(2, request.range.end ?? '')
      writer.text(1, request.range.key)
    })
  },
  decode(reader) {
    let id = 0
    let revision = 0
    let canceled = false
    let compactRevision = 0
    let cancelReason = ''
    const events: WatchEvent[] = []
    for (let field = reader.next(); field !== 0; field = reader.next()) {
      if (field === 1) revision = readRevision(reader.message())
      else if (field === 2) id = reader.number()
      else if (field === 4) canceled = reader.flag()
      else if (field === 5) compactRevision = reader.number()
      else if (field === 6) cancelReason = reader.text()
      else if (field === 11) events.push(readEvent(reader.message()))
      else reader.skip()
    }
    return { id, revision, canceled, compactRevision, cancelReason, events }
  },
}

function readEvent(reader: MessageReader): WatchEvent {
  let deleted = false
  let pair: KeyValue = { key: '', value: '', createRevision: 0, modRevision: 0, lease: 0 }
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) deleted = reader.flag()
    else if (field === 2) pair = readKeyValue(reader.message())
    else reader.skip()
  }
  return { deleted, pair }
}

export const AUTHENTICATE: Method<{ readonly name: string; readonly password: string }, string> = {
  path: '/etcdserverpb.Auth/Authenticate',
  encode({ name, password }, writer) {
    writer.text(2, password)
    writer.text(1, name)
  },
  decode(reader) {
    let token = ''
    for (let field = reader.next(); field !== 0; field = reader.next()) {
      if (field === 2) token = reader.text()
      else reader.skip()
    }
    return token
  },
}
