import { unreachedBecause } from '../../../base/unreached.ts'
import { StoreError } from '../../../errors.ts'

/** The status of a gRPC request that failed. */
export class StatusError extends Error {
  override readonly name = 'StatusError'
  /** https://grpc.github.io/grpc/core/md_doc_statuscodes.html */
  readonly status: number

  constructor(status: number, message: string) {
    super(message)
    this.status = status
  }
}

/** No answer came, or one that is not of etcd. */
export class ConnectionError extends Error {
  override readonly name = 'ConnectionError'
}

/** Users or roles were changed since the token was given, in the words of two versions of etcd; or a token is needed by now. */
const STALE_TOKEN = /revision in header is old|revision of auth store is old|user name is empty/

/** Whether a new token may help: the old one is no longer valid, or none was needed until now. */
export function needsNewToken(error: unknown): boolean {
  return error instanceof StatusError && (error.status === UNAUTHENTICATED || STALE_TOKEN.test(error.message))
}

/** The lease that a key was to be bound to has ended: nothing was written. */
export function isLeaseGone(error: unknown): boolean {
  return error instanceof StatusError && /requested lease not found/.test(error.message)
}

export function isLeaseThere(error: unknown): boolean {
  return error instanceof StatusError && /lease already exists/.test(error.message)
}

export const REFUSED = 'etcd refused a request of the store. Its words are in the `cause`.'

export function isAuthOff(error: unknown): boolean {
  return error instanceof StatusError && /authentication is not enabled/.test(error.message)
}

/** Why etcd refuses for good. Undefined if another try, or another member, may help. */
export function refusalOf(error: unknown, prefix: string): string | undefined {
  if (error instanceof StatusError) return refusedStatus(error, prefix)
  if (!(error instanceof ConnectionError)) return undefined
  const code = codeOf(error.cause)
  if (code === 'CERT_HAS_EXPIRED') {
    return 'The certificate of the etcd member has expired. Renew it; until then nobody can know whom they talk to.'
  }
  if (code !== undefined && UNTRUSTED.has(code)) {
    return 'The certificate of the etcd member was not signed by an authority that this process trusts. Name that authority in `tls.ca`.'
  }
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID') {
    return 'The certificate of the etcd member is for another host name than the one in `endpoints`.'
  }
  if (code !== undefined && /^ERR_SSL.*(?:CERTIFICATE|UNKNOWN_CA|HANDSHAKE_FAILURE)/.test(code)) {
    return 'The etcd member did not accept the certificate of this client, or got none. Give it one it trusts: `tls.cert` and `tls.key`.'
  }
  if (code === 'ERR_SSL_WRONG_VERSION_NUMBER' || code === 'ERR_SSL_PACKET_LENGTH_TOO_LONG') {
    return 'The server does not speak TLS there. Use http:// in `endpoints`, or the client port of etcd that does.'
  }
  if (error.message === NOT_ETCD) return NOT_ETCD
  return undefined
}

export const NOT_ETCD =
  'The server that answered is not etcd, or not an etcd that speaks its API version 3 there. Check the host and the client port in `endpoints`.'

/** Whether a refusal is of one member, and says nothing of the others: a certificate, or a server that is no etcd. */
export function isOfMember(error: unknown): boolean {
  return !(error instanceof StatusError) || error.status === UNIMPLEMENTED
}

/** The error for the caller when no member has answered. `refusal`: why one of them refuses for good. */
export function unavailable(error: unknown, refusal?: string): StoreError {
  const what =
    error instanceof StatusError
      ? 'etcd cannot carry out the request now: it has no leader, or is overloaded. Check `etcdctl endpoint status`.'
      : `No etcd member could be reached. ${reasonOf(error)}`
  const another = refusal === undefined ? '' : ` Of another one: ${refusal}`
  return new StoreError('store-unavailable', what + another, { cause: error })
}

/** Of the member that was asked last. */
function reasonOf(error: unknown): string {
  const { cause } = error as Error
  if (cause instanceof StatusError && /name resolution failed/i.test(cause.message)) {
    return 'The host name of a member has no address. Check `endpoints`.'
  }
  const why = unreachedBecause(cause)
  if (why !== undefined) return `Of one of them: ${why}`
  return 'Check that they run, their addresses, whether they speak TLS, and the network in between.'
}

export function refused(sentence: string, error: unknown): StoreError {
  return new StoreError('store-refused', sentence, { cause: error })
}

function refusedStatus({ status, message }: StatusError, prefix: string): string | undefined {
  if (/authentication failed|user name not found/.test(message)) {
    return 'etcd did not accept the user name and password. Check `auth`.'
  }
  if (/user name is empty/.test(message)) {
    return 'etcd asks for a user name and password, and this client has none. Set `auth`.'
  }
  if (status === PERMISSION_DENIED) {
    return `The etcd user may not read and write all keys that begin with ${JSON.stringify(prefix)}. Grant its role readwrite on that prefix.`
  }
  if (/database space exceeded/.test(message)) {
    return 'etcd has no space left (alarm NOSPACE). Compact and defragment it, and disarm the alarm.'
  }
  if (status === UNIMPLEMENTED) return NOT_ETCD
  return undefined
}

function codeOf(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined
}

const UNTRUSTED = new Set([
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'CERT_UNTRUSTED',
])

const PERMISSION_DENIED = 7
const UNIMPLEMENTED = 12
const UNAUTHENTICATED = 16
