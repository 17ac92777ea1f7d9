import protobuf from 'protobufjs'
import { describe, expect, test } from 'vitest'
import { MEMBER_LIST, STATUS } from '../../../src/stores/etcd/grpc/doctor-messages.ts'
import {
  AUTHENTICATE,
  encoded,
  LEASE_GRANT,
  LEASE_KEEP_ALIVE,
  LEASE_TIME_TO_LIVE,
  type Method,
  TXN,
  WATCH,
} from '../../../src/stores/etcd/grpc/messages.ts'
import { MessageReader } from '../../../src/stores/etcd/grpc/wire.ts'

/**
 * The part of etcdserverpb/rpc.proto and mvccpb/kv.proto that the store uses, and one field of each kind that it skips.
 */
const { root } = protobuf.parse(
  `
  syntax = "proto3";
  message KeyValue {
    string key = 1; int64 create_revision = 2; int64 mod_revision = 3; int64 version = 4; string value = 5; int64 lease = 6;
  }
  message Event { int32 type = 1; KeyValue kv = 2; }
  message Header { uint64 cluster_id = 1; uint64 member_id = 2; int64 revision = 3; uint64 raft_term = 4; }
  message RangeRequest { string key = 1; string range_end = 2; int64 limit = 3; bool count_only = 9; }
  message RangeResponse { Header header = 1; repeated KeyValue kvs = 2; bool more = 3; int64 count = 4; }
  message PutRequest { string key = 1; string value = 2; int64 lease = 3; }
  message PutResponse { Header header = 1; }
  message DeleteRangeRequest { string key = 1; }
  message RequestOp {
    oneof request { RangeRequest range = 1; PutRequest put = 2; DeleteRangeRequest delete = 3; }
  }
  message ResponseOp { oneof response { RangeResponse range = 1; PutResponse put = 2; } }
  message Compare {
    int32 result = 1; int32 target = 2; string key = 3;
    oneof target_union { int64 version = 4; int64 create_revision = 5; int64 mod_revision = 6; string value = 7; }
    string range_end = 64;
  }
  message TxnRequest { repeated Compare compare = 1; repeated RequestOp success = 2; repeated RequestOp failure = 3; }
  message TxnResponse { Header header = 1; bool succeeded = 2; repeated ResponseOp responses = 3; fixed64 later = 15; }
  message LeaseGrantRequest { int64 TTL = 1; int64 ID = 2; }
  message LeaseRequest { int64 ID = 1; }
  message LeaseResponse { Header header = 1; int64 ID = 2; int64 TTL = 3; fixed32 later = 15; }
  message WatchCreateRequest { string key = 1; string range_end = 2; int64 start_revision = 3; int64 watch_id = 7; }
  message WatchCancelRequest { int64 watch_id = 1; }
  message WatchRequest { oneof request { WatchCreateRequest create = 1; WatchCancelRequest cancel = 2; } }
  message WatchResponse {
    Header header = 1; int64 watch_id = 2; bool created = 3; bool canceled = 4; int64 compact_revision = 5;
    string cancel_reason = 6; repeated Event events = 11;
  }
  message AuthenticateRequest { string name = 1; string password = 2; }
  message AuthenticateResponse { Header header = 1; string token = 2; }
  message Empty {}
  message StatusResponse {
    Header header = 1; string version = 2; int64 db_size = 3; uint64 leader = 4; uint64 raft_index = 5;
    repeated string errors = 8; int64 db_size_in_use = 9; bool is_learner = 10; int64 db_size_quota = 12;
  }
  message Member { uint64 ID = 1; string name = 2; repeated string peerURLs = 3; bool isLearner = 5; }
  message MemberListResponse { Header header = 1; repeated Member members = 2; }
  `,
  { keepCase: true },
)

function wanted(type: string, fields: object): string {
  return Buffer.from(root.lookupType(type).encode(fields).finish()).toString('hex')
}

function read<Reply>(method: Method<never, Reply>, type: string, fields: object): Reply {
  const bytes = Buffer.from(root.lookupType(type).encode(fields).finish())
  return method.decode(new MessageReader(bytes))
}

const LARGE = Number.MAX_SAFE_INTEGER

describe('what the store sends is, byte by byte, what protobufjs makes of it', () => {
  test('a transaction', () => {
    const request = {
      when: [
        { that: 'created', is: 'equal', key: 'a', revision: 0 },
        { that: 'created', is: 'less', key: 'ä/€', end: 'b', revision: 128 },
        { that: 'modified', is: 'equal', key: 'c', revision: LARGE },
        { that: 'modified', is: 'less', key: 'c', end: 'd', revision: 2 ** 32 },
        { that: 'value', is: 'equal', key: 'e', value: 'x'.repeat(700) },
      ],
      apply: [
        { tag: 'put', key: 'a', value: '🔒', lease: LARGE },
        { tag: 'put', key: 'a', value: '', lease: 0 },
        { tag: 'delete', key: 'a' },
      ],
      otherwise: [
        { tag: 'range', key: 'a' },
        { tag: 'range', key: 'a', end: 'b', limit: 500 },
        { tag: 'range', key: 'a', end: 'b', counts: true },
      ],
    } as const
    expect(encoded(TXN, request).toString('hex')).toBe(
      wanted('TxnRequest', {
        compare: [
          { target: 1, key: 'a' },
          { result: 2, target: 1, key: 'ä/€', create_revision: 128, range_end: 'b' },
          { target: 2, key: 'c', mod_revision: LARGE },
          { result: 2, target: 2, key: 'c', mod_revision: 2 ** 32, range_end: 'd' },
          { target: 3, key: 'e', value: 'x'.repeat(700) },
        ],
        success: [
          { put: { key: 'a', value: '🔒', lease: LARGE } },
          { put: { key: 'a' } },
          { delete: { key: 'a' } },
        ],
        failure: [
          { range: { key: 'a' } },
          { range: { key: 'a', range_end: 'b', limit: 500 } },
          { range: { key: 'a', range_end: 'b', count_only: true } },
        ],
      }),
    )
    expect(encoded(TXN, { when: [], apply: [], otherwise: [] }).toString('hex')).toBe('')
  })

  test('leases, watches, a user, and questions about members', () => {
    const sent = [
      encoded(LEASE_GRANT, { id: LARGE, ttl: 40 }),
      encoded(LEASE_KEEP_ALIVE, { id: LARGE }),
      encoded(LEASE_TIME_TO_LIVE, { id: 1 }),
      encoded(WATCH, { tag: 'create', id: 3, range: { key: 'a', end: 'b' }, from: 300 }),
      encoded(WATCH, { tag: 'cancel', id: 3 }),
      encoded(WATCH, { tag: 'cancel', id: 0 }),
      encoded(AUTHENTICATE, { name: 'app', password: 'pässword' }),
      encoded(STATUS, {}),
      encoded(MEMBER_LIST, {}),
    ]
    expect(sent.map((message) => message.toString('hex'))).toEqual([
      wanted('LeaseGrantRequest', { TTL: 40, ID: LARGE }),
      wanted('LeaseRequest', { ID: LARGE }),
      wanted('LeaseRequest', { ID: 1 }),
      wanted('WatchRequest', { create: { key: 'a', range_end: 'b', start_revision: 300, watch_id: 3 } }),
      wanted('WatchRequest', { cancel: { watch_id: 3 } }),
      wanted('WatchRequest', { cancel: {} }),
      wanted('AuthenticateRequest', { name: 'app', password: 'pässword' }),
      wanted('Empty', {}),
      wanted('Empty', {}),
    ])
  })
})

describe('what etcd says is understood as protobufjs has written it, with fields that nobody asked for', () => {
  const header = { cluster_id: 7, member_id: 8, revision: LARGE, raft_term: 2 }

  test('of a transaction', () => {
    const kv = { key: 'ä', create_revision: 5, mod_revision: 2 ** 40, version: 3, value: '🔒', lease: LARGE }
    const reply = read(TXN, 'TxnResponse', {
      header,
      succeeded: true,
      responses: [{ put: { header } }, { range: { header, kvs: [kv, { key: 'b' }], more: true, count: 9 } }],
      later: 99,
    })
    expect(reply).toEqual({
      revision: LARGE,
      succeeded: true,
      ranges: [
        { pairs: [], more: false, count: 0 },
        {
          pairs: [
            { key: 'ä', createRevision: 5, modRevision: 2 ** 40, value: '🔒', lease: LARGE },
            { key: 'b', createRevision: 0, modRevision: 0, value: '', lease: 0 },
          ],
          more: true,
          count: 9,
        },
      ],
    })
  })

  test('of leases, also of one that is gone: its time is below zero', () => {
    const lease = { header, ID: LARGE, later: 99 }
    expect(read(LEASE_KEEP_ALIVE, 'LeaseResponse', { ...lease, TTL: 40 })).toEqual({ id: LARGE, ttl: 40 })
    for (const TTL of [-1, -2, -(2 ** 32), -LARGE]) {
      expect(read(LEASE_TIME_TO_LIVE, 'LeaseResponse', { ...lease, TTL })).toEqual({ id: LARGE, ttl: TTL })
    }
  })

  test('of a watch, also of one that is refused without its number', () => {
    const deleted = { type: 1, kv: { key: 'a', mod_revision: 12 } }
    const reply = read(WATCH, 'WatchResponse', {
      header,
      watch_id: 3,
      events: [deleted, { kv: { key: 'b', mod_revision: 13, value: 'x' } }],
    })
    const none = { createRevision: 0, value: '', lease: 0 }
    expect(reply).toEqual({
      id: 3,
      revision: LARGE,
      canceled: false,
      compactRevision: 0,
      cancelReason: '',
      events: [
        { deleted: true, pair: { ...none, key: 'a', modRevision: 12 } },
        { deleted: false, pair: { ...none, key: 'b', modRevision: 13, value: 'x' } },
      ],
    })
    const refusal = { watch_id: -1, created: true, canceled: true, compact_revision: 4, cancel_reason: 'no' }
    expect(read(WATCH, 'WatchResponse', refusal)).toMatchObject({
      ...{ id: -1, canceled: true, compactRevision: 4, cancelReason: 'no', events: [] },
    })
  })

  test('of a token, of a member, and of all members', () => {
    expect(read(AUTHENTICATE, 'AuthenticateResponse', { header, token: 'abc.7' })).toBe('abc.7')
    const facts = { db_size: 20, leader: 8, raft_index: 3, errors: ['a', 'b'], db_size_in_use: 10 }
    expect(
      read(STATUS, 'StatusResponse', {
        header,
        version: '3.5.1',
        ...facts,
        is_learner: true,
        db_size_quota: 90,
      }),
    ).toEqual({
      ...{ cluster: 7, member: 8, version: '3.5.1', leader: 8, isLearner: true },
      ...{ sizeBytes: 20, usedBytes: 10, quotaBytes: 90, errors: ['a', 'b'] },
    })
    const members = [
      { ID: 8, name: 'm0', peerURLs: ['http://a'] },
      { ID: 9, isLearner: true },
    ]
    expect(read(MEMBER_LIST, 'MemberListResponse', { header, members })).toEqual([
      { id: 8, isLearner: false },
      { id: 9, isLearner: true },
    ])
  })

  test('of nobody who cuts it short or does not come to an end: that is an error, and no loop', () => {
    const whole = Buffer.from(
      root
        .lookupType('TxnResponse')
        .encode({ header, responses: [{ range: { kvs: [{ key: 'abc' }] } }] })
        .finish(),
    )
    for (let length = 1; length < whole.length; length += 1) {
      const cut = whole.subarray(0, length)
      const understood = () => TXN.decode(new MessageReader(cut))
      if (length === 2 + (whole[1] as number)) expect(understood()).toMatchObject({ ranges: [] })
      else expect(understood).toThrow(/shorter|ends in the middle/)
    }
    const endless = Buffer.alloc(64, 0xff)
    expect(() => TXN.decode(new MessageReader(endless))).toThrow(/does not end/)
  })
})
