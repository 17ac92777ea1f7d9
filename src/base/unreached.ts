import { fieldOf } from './thrown.ts'

/**
 * A sentence that says why a server could not be reached, by the error of a socket, of the resolver or of TLS. Undefined if the error says no more than that there is no connection. A host name is in no
 * sentence: see {@link addressIn}.
 */
export function unreachedBecause(error: unknown): string | undefined {
  for (const one of withCauses(error)) {
    const code = fieldOf(one, 'code')
    if (typeof code !== 'string') continue
    const what = REASONS[code]
    if (what !== undefined) return sentenceOf(what, code, addressIn(one))
  }
  return undefined
}

/** Whether the error says that nobody is there to be asked. A connection that was closed says less: a server may be behind it. */
export function isNobodyThere(error: unknown): boolean {
  for (const one of withCauses(error)) {
    const code = fieldOf(one, 'code')
    if (typeof code === 'string' && NOBODY.has(code)) return true
  }
  return false
}

const NOBODY: ReadonlySet<string> = new Set(['ECONNREFUSED', 'ENOTFOUND', 'EHOSTUNREACH', 'ENETUNREACH'])

const WITHOUT_TLS = 'The server does not speak TLS at that port'
const UNTRUSTED =
  'The certificate of the server was not signed by an authority that this process trusts; see NODE_EXTRA_CA_CERTS'

const REASONS: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'Nothing listens at {address}',
  ENOTFOUND: 'Its host name has no address',
  EAI_AGAIN: 'No name server answered for its host name',
  ETIMEDOUT: 'Nothing answered at {address}',
  ERR_SOCKET_CONNECTION_TIMEOUT: 'Nothing answered at {address}',
  EHOSTUNREACH: 'There is no route to {address}',
  ENETUNREACH: 'There is no route to {address}',
  ECONNRESET: 'The connection was closed there: perhaps only one of the two sides speaks TLS',
  EPIPE: 'The connection was closed there: perhaps only one of the two sides speaks TLS',
  EPROTO: 'TLS failed: perhaps the server does not speak it at that port',
  ENOENT: 'The file of its socket does not exist',
  ERR_SSL_WRONG_VERSION_NUMBER: WITHOUT_TLS,
  ERR_SSL_PACKET_LENGTH_TOO_LONG: WITHOUT_TLS,
  DEPTH_ZERO_SELF_SIGNED_CERT: UNTRUSTED,
  SELF_SIGNED_CERT_IN_CHAIN: UNTRUSTED,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNTRUSTED,
  UNABLE_TO_GET_ISSUER_CERT: UNTRUSTED,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: UNTRUSTED,
  CERT_UNTRUSTED: UNTRUSTED,
  CERT_HAS_EXPIRED: 'The certificate of the server has expired',
  ERR_TLS_CERT_ALTNAME_INVALID: 'The certificate of the server is for another host name',
}

function sentenceOf(what: string, code: string, address = 'its address'): string {
  return `${what.replace('{address}', address)} (${code}).`
}

/**
 * Only an IP address is shown. The text in the place of a host name may be a part of a password with a / or # in it.
 */
function addressIn(error: unknown): string | undefined {
  const [address, port] = [fieldOf(error, 'address'), fieldOf(error, 'port')]
  if (typeof address !== 'string' || typeof port !== 'number' || !/^[\d.]+$|:/.test(address)) return undefined
  return address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`
}

/** The error, the first of those that it collects, and what caused it. */
function* withCauses(error: unknown): Generator<unknown, void, void> {
  let one = error
  for (let depth = 0; one !== undefined && depth < MOST_CAUSES; depth += 1) {
    yield one
    const collected = fieldOf(one, 'errors')
    one =
      (Array.isArray(collected) ? (collected as readonly unknown[])[0] : undefined) ?? fieldOf(one, 'cause')
  }
}

const MOST_CAUSES = 5
