import type { Method } from './messages.ts'
import type { MessageReader } from './wire.ts'

/** What a member says of itself (etcdserverpb/rpc.proto, StatusResponse). */
export interface MemberStatus {
  /** Of the cluster that it belongs to: to be compared, as it is not exact. */
  readonly cluster: number
  readonly member: number
  readonly version: string
  /** Of the member that leads; 0 when it knows of none. */
  readonly leader: number
  readonly isLearner: boolean
  readonly sizeBytes: number
  readonly usedBytes: number
  /** 0 before etcd 3.6, which tells. */
  readonly quotaBytes: number
  /** Alarms, and that there is no leader. */
  readonly errors: readonly string[]
}

export const STATUS: Method<Record<never, never>, MemberStatus> = {
  path: '/etcdserverpb.Maintenance/Status',
  encode() {},
  decode(reply) {
    let header = { cluster: 0, member: 0 }
    let version = ''
    const numbers = new Map<number, number>()
    const errors: string[] = []
    for (let field = reply.next(); field !== 0; field = reply.next()) {
      if (field === 1) header = readHeader(reply.message())
      else if (field === 2) version = reply.text()
      else if (field === 8) errors.push(reply.text())
      else if (NUMBERS.has(field)) numbers.set(field, reply.number())
      else reply.skip()
    }
    const number = (field: number): number => numbers.get(field) ?? 0
    return {
      ...header,
      version,
      leader: number(4),
      isLearner: number(10) !== 0,
      sizeBytes: number(3),
      usedBytes: number(9),
      quotaBytes: number(12),
      errors,
    }
  },
}

/** dbSize, leader, dbSizeInUse, isLearner, dbSizeQuota. */
const NUMBERS: ReadonlySet<number> = new Set([3, 4, 9, 10, 12])

function readHeader(header: MessageReader): { readonly cluster: number; readonly member: number } {
  let cluster = 0
  let member = 0
  for (let field = header.next(); field !== 0; field = header.next()) {
    if (field === 1) cluster = header.number()
    else if (field === 2) member = header.number()
    else header.skip()
  }
  return { cluster, member }
}

export interface KnownMember {
  readonly id: number
  readonly isLearner: boolean
}

export const MEMBER_LIST: Method<Record<never, never>, readonly KnownMember[]> = {
  path: '/etcdserverpb.Cluster/MemberList',
  encode() {},
  decode(reply) {
    const members: KnownMember[] = []
    for (let field = reply.next(); field !== 0; field = reply.next()) {
      if (field === 2) members.push(readMember(reply.message()))
      else reply.skip()
    }
    return members
  },
}

function readMember(reader: MessageReader): KnownMember {
  let id = 0
  let isLearner = false
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) id = reader.number()
    else if (field === 5) isLearner = reader.flag()
    else reader.skip()
  }
  return { id, isLearner }
}
