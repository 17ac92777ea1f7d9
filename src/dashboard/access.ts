import { createHash, createHmac, timingSafeEqual } from 'node:crypto'
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http'
import { isLoopback } from '../base/loopback.ts'

/**
 * The dashboard answers browsers that `authorize` accepts or that have the token. Without both it answers browsers on this
 * machine.
 */
export interface AccessOptions {
  readonly token: string | undefined
  readonly authorize: ((request: IncomingMessage) => boolean | Promise<boolean>) | undefined
  /** Other origins under which browsers reach the dashboard, such as `https://locks.example`. */
  readonly origins: readonly string[]
}

/**
 * `unknown`: the token is missing or wrong. `unauthorized`: `authorize` refused. `foreign`: a page of another site has sent the request,
 * whatever cookies it carries. `outside`: there is no token, and the request comes from another machine.
 */
export type AccessDecision = 'granted' | 'unknown' | 'unauthorized' | 'foreign' | 'outside'

/** Decides for each request whether the dashboard may answer it. */
export class Access {
  readonly #options: AccessOptions
  /** The browser keeps a value derived from the token. The name is derived, too, as cookies are shared by all ports. */
  readonly #cookie: { readonly name: string; readonly value: string } | undefined

  constructor(options: AccessOptions) {
    this.#options = options
    const { token } = options
    if (token === undefined) return
    const derived = createHmac('sha256', token).update('holdfast dashboard').digest('base64url')
    this.#cookie = { name: `holdfast-${derived.slice(0, 8)}`, value: derived.slice(8) }
  }

  async decide(request: IncomingMessage): Promise<AccessDecision> {
    if (this.#isForeign(request)) return 'foreign'
    const { token, authorize } = this.#options
    if (authorize !== undefined) return (await authorize(request)) === true ? 'granted' : 'unauthorized'
    if (token !== undefined) return this.#knowsToken(request, token) ? 'granted' : 'unknown'
    return isFromThisMachine(request) ? 'granted' : 'outside'
  }

  isToken(text: string): boolean {
    const { token } = this.#options
    return token !== undefined && isSame(text, token)
  }

  /** Without `Path`, so that the browser uses the address it asked for: a proxy may have changed the one seen here. */
  cookieFor(request: IncomingMessage): string {
    const { name, value } = this.#cookie ?? { name: '', value: '' }
    // Of several proxies, the first entry is the one that the browser spoke to.
    const [scheme] = String(request.headers['x-forwarded-proto'] ?? '').split(',')
    const isEncrypted = 'encrypted' in request.socket || scheme === 'https'
    return `${name}=${value}; HttpOnly; SameSite=Strict${isEncrypted ? '; Secure' : ''}`
  }

  #knowsToken({ headers }: IncomingMessage, token: string): boolean {
    const [, bearer] = /^bearer +(\S+)$/i.exec(headers.authorization ?? '') ?? []
    if (bearer !== undefined) return isSame(bearer, token)
    const cookie = this.#cookie
    const cookies = (headers.cookie ?? '').split(';').map((each) => each.trim().split('='))
    return cookies.some(([name, value = '']) => name === cookie?.name && isSame(value, cookie?.value ?? ''))
  }

  /** Browsers set these headers themselves; a page cannot forge them. */
  #isForeign({ headers }: IncomingMessage): boolean {
    const site = headers['sec-fetch-site']
    // This holds also where a proxy has changed `Host`.
    if (site === 'same-origin') return false
    if (site !== undefined && site !== 'none') return true
    const { origin } = headers
    const host = hostOf(headers)
    if (origin === undefined || this.#options.origins.includes(origin)) return false
    return !URL.canParse(origin) || new URL(origin).host !== host
  }
}

/**
 * Refuses DNS rebinding, where another site's name resolves to 127.0.0.1: `Host` still has that name. Refuses what a proxy
 * passes on, too, as it may come from anywhere. Since 1.29.7 nginx leaves no mark of its own. Then only the `Origin` of a POST tells.
 */
function isFromThisMachine({ headers, socket, httpVersion }: IncomingMessage): boolean {
  // No browser speaks HTTP/1.0, but nginx before 1.29.7 does to its upstream, and by default without any header that marks a proxy.
  const isPassedOn = httpVersion === '1.0' || Object.keys(headers).some((name) => PROXY_MARK.test(name))
  const host = hostOf(headers) ?? ''
  if (isPassedOn || isFromElsewhere(headers.origin)) return false
  if (!/^[\w.:[\]-]+$/.test(host) || !URL.canParse(`http://${host}`)) return false
  return isLoopback(socket.remoteAddress ?? '') && isLoopback(new URL(`http://${host}`).hostname)
}

/** Whether the browser has reached the page under the name of another machine, and a proxy has changed `Host`. */
function isFromElsewhere(origin: string | undefined): boolean {
  return origin !== undefined && URL.canParse(origin) && !isLoopback(new URL(origin).hostname)
}

/** HTTP/2 sends `:authority` instead of `Host`. */
function hostOf(headers: IncomingHttpHeaders & { readonly ':authority'?: string }): string | undefined {
  return headers.host ?? headers[':authority']
}

const PROXY_MARK = /^(?:forwarded|via|x-real-ip|x-forwarded-.*|x-client-ip|true-client-ip|cf-.*)$/

/** Compares in constant time, so that the duration does not reveal where the texts differ. */
function isSame(one: string, other: string): boolean {
  return timingSafeEqual(digestOf(one), digestOf(other))
}

function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}
