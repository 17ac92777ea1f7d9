import { messageOf } from '../../../base/thrown.ts'
import { unreachedBecause } from '../../../base/unreached.ts'
import { StoreError } from '../../../errors.ts'

/**
 * The first word of an error reply. Undefined when the server sent no reply: there is no connection, the connection was
 * lost, or no answer came.
 */
export function replyCode(error: unknown): string | undefined {
  const message = messageOf(error)
  // Redis 6.2 and 7.0 put the error of a command inside a script behind words of their own.
  return (
    /\b(?:NOSCRIPT|READONLY|OOM|NOPERM|MISCONF)\b/.exec(message)?.[0] ?? /^-?([A-Z]{2,})\b/.exec(message)?.[1]
  )
}

/**
 * The error a caller gets. `store-refused` where asking again cannot help until a person has changed something, else
 * `store-unavailable`. The server's own words are in the `cause`, without the command: that may hold a password.
 */
export function storeErrorOf(error: unknown, key: string | undefined, readOnlyForMs: number): StoreError {
  if (error instanceof StoreError) return error
  const code = replyCode(error)
  if (code === undefined) return unreachedError(error, key)
  const refusal = REFUSALS[code] ?? refusalOf(messageOf(error))
  const cause = wordsOf(error)
  if (code === 'READONLY' && readOnlyForMs < FAILOVER_MS) {
    return new StoreError('store-unavailable', READ_ONLY, { key, cause })
  }
  if (refusal !== undefined) return new StoreError('store-refused', refusal, { key, cause })
  return new StoreError('store-unavailable', TRANSIENT[code] ?? BUSY, { key, cause })
}

/** The server has said nothing. */
function unreachedError(cause: unknown, key: string | undefined): StoreError {
  const why = unreachedBecause(cause)
  if (why === undefined) return new StoreError('store-unavailable', `${UNREACHED} ${CHECK}`, { key, cause })
  // Also a bad certificate: it may be replaced, and a waiter keeps its place until then.
  return new StoreError('store-unavailable', `${UNREACHED} ${why}`, { key, cause })
}

/** The key is there, and not as this version keeps it: `layout` is the number it begins with, if it begins with one. */
export function layoutErrorOf(key: string, name: string, layout: string): StoreError {
  const what =
    layout === ''
      ? `The Redis key ${JSON.stringify(name)} is used by something else, or is a lock that another program or another version of Holdfast has changed. Choose another \`prefix\` for redisStore() if another program uses the key. If it is a lock of Holdfast, delete it once nobody works under it.`
      : `The Redis key ${JSON.stringify(name)} was written by ${otherVersion(layout)}`
  return new StoreError('store-refused', what, { key })
}

function otherVersion(layout: string): string {
  return Number(layout) < LAYOUT
    ? `an older version of Holdfast (layout ${layout}). Stop its processes. The key goes away when its last lease has ended.`
    : `a newer version of Holdfast (layout ${layout}). Update this one.`
}

/** The layout of rooms; see room.lua. */
const LAYOUT = 2

/** The last fence is kept under `name`, and what is there is none to go on from; see last.lua. */
export function fenceErrorOf(key: string, name: string): StoreError {
  const what = `The Redis key ${JSON.stringify(name)} should hold the last fence, a number below 9000000000000000, and holds something else. ${FENCE_ADVICE}`
  return new StoreError('store-refused', what, { key })
}

export const FENCE_ADVICE =
  'Choose another `prefix` for redisStore() if another program uses that key; if nobody does, set it to the last fence that was really given, or delete it to go on from the time of the server.'

/** Something that no script of the store and no command says. */
export function unexpectedReply(reply: unknown): StoreError {
  const got = typeof reply === 'string' ? JSON.stringify(reply.slice(0, 100)) : typeof reply
  const cause = new TypeError(`Expected what Redis or a script of the store says, got ${got}`)
  return new StoreError('store-refused', UNEXPECTED, { cause })
}

const UNEXPECTED =
  'The Redis server gave an answer that makes no sense. Check that the address is that of a Redis or Valkey server, and what lies in between.'

/**
 * A server that was demoted in a fail-over is read-only until the client has found the new primary. A server that is
 * still read-only after this long is a replica that somebody has mistaken for the primary.
 */
const FAILOVER_MS = 3000

const READ_ONLY =
  'The Redis server is a read-only replica. Connect to the primary; in a fail-over this passes by itself.'
const UNREACHED = 'The Redis server could not be reached.'
const CHECK = 'Check that it runs, its address, and the network in between.'
const BUSY = 'The Redis server is not ready to answer.'

const CREDENTIALS =
  'The Redis server did not accept the user name and password of the client, or got none. Check its credentials.'

const CLUSTER =
  'The Redis server is part of a cluster. Pass redisStore() a client of the cluster: `new Cluster(…)` of ioredis or `createCluster(…)` of redis; or connect() a redis+cluster:// url.'

const DATABASE =
  'The Redis server has no database with the number that the client asks for. Choose a lower number, or raise the `databases` setting of the server.'

const REFUSALS: Readonly<Record<string, string>> = {
  WRONGPASS: CREDENTIALS,
  NOAUTH: CREDENTIALS,
  DENIED:
    'The Redis server is in protected mode: it has no password, and serves only clients of its own machine. Set a password on the server and in the client.',
  NOPERM:
    'The Redis user may not do what the store has to do. Grant it the commands, keys and channels that docs/redis.md lists.',
  OOM: 'The Redis server has no memory left for another key. Raise its `maxmemory`, or remove what is not needed.',
  MISCONF: 'The Redis server refuses to write because it cannot save to its disk. Look at its log.',
  READONLY: READ_ONLY,
  WRONGTYPE: 'A Redis key of the store is used by something else. Choose another `prefix` for redisStore().',
  MOVED: CLUSTER,
  CROSSSLOT: CLUSTER,
  NOPROTO: 'The Redis server does not speak the RESP version that the client asks for. Ask for version 2.',
}

const TRANSIENT: Readonly<Record<string, string>> = {
  LOADING: 'The Redis server has just started and is still loading its data.',
  BUSY: 'The Redis server is busy with a script that does not end. See SCRIPT KILL.',
  MASTERDOWN: 'The Redis server is a replica that has lost its primary.',
  CLUSTERDOWN:
    'The Redis cluster is down: too many of its masters, or the one for this key, are gone and nobody has taken their place yet. See `redis-cli --cluster check`.',
  NOREPLICAS: 'The Redis server has fewer replicas than it was told to write to.',
}

/** Replies that begin with a mere ERR are told apart by their words. */
function refusalOf(message: string): string | undefined {
  // Before it knows who asks, a server takes only short requests.
  if (/\bunauthenticated\b/i.test(message)) return CREDENTIALS
  if (/can't (?:run this command|publish to the channel)|no permissions/i.test(message))
    return REFUSALS['NOPERM']
  if (/without any password configured|no password is set/i.test(message)) {
    return 'The Redis server has no password, and the client sends one. Remove it from the client, or set it on the server.'
  }
  if (/DB index is out of range|invalid DB index/i.test(message)) return DATABASE
  if (/SELECT is not allowed in cluster mode/i.test(message)) return CLUSTER
  if (/max number of clients|while the cluster is down/i.test(message)) return undefined
  if (/^-?ERR\b/.test(message))
    return 'The Redis server refused a request of the store. Its words are in the `cause`.'
  return undefined
}

/** The server's own words, without the command: that may hold a password. */
export function wordsOf(error: unknown): Error {
  return new Error(messageOf(error).slice(0, LONGEST_WORDS))
}

/** The words of a server may be of any length. */
const LONGEST_WORDS = 1000

/** Whether a request that failed with `error` can only succeed after a person has changed something. */
export function needsPerson(error: unknown): boolean {
  return storeErrorOf(error, undefined, 0).code === 'store-refused'
}

/** Whether the server has no database with the number that the client asks for, so that it refuses every command. */
export function isMissingDatabase(error: unknown): boolean {
  return refusalOf(messageOf(error)) === DATABASE
}

/** Whether the user lacks a right. */
export function isMissingRight(error: unknown): boolean {
  return storeErrorOf(error, undefined, 0).message === REFUSALS['NOPERM']
}
