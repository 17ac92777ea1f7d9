import { createHash, createHmac, timingSafeEqual } from 'node:crypto'
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http'
import { isLoopback } from '../base/loopback.ts'

/** Who may look: who knows the token, who the application says, or otherwise whoever sits at this machine. */
export interface AccessOptions {
  readonly token: string | undefined
  readonly authorize: ((request: IncomingMessage) => boolean | Promise<boolean>) | undefined
  /** Other names under which browsers may reach us, such as `https://locks.example`. */
  readonly origins: readonly string[]
}

/**
 * `foreign`: a page of somebody else has sent it, whatever cookies it carries. `outside`: without a token only this
 * machine is answered.
 */
export type Standing = 'granted' | 'unknown' | 'foreign' | 'outside'

export class Access {
  readonly #options: AccessOptions
  /** What the browser keeps instead of the token, under a name of its own: cookies know no ports. */
  readonly #cookie: { readonly name: string; readonly value: string } | undefined

  constructor(options: AccessOptions) {
    this.#options = options
    const { token } = options
    if (token === undefined) return
    const derived = createHmac('sha256', token).update('holdfast dashboard').digest('base64url')
    this.#cookie = { name: `holdfast-${derived.slice(0, 8)}`, value: derived.slice(8) }
  }

  async standingOf(request: IncomingMessage): Promise<Standing> {
    if (this.#isForeign(request)) return 'foreign'
    const { token, authorize } = this.#options
    if (authorize !== undefined) return (await authorize(request)) === true ? 'granted' : 'unknown'
    if (token !== undefined) return this.#knowsToken(request, token) ? 'granted' : 'unknown'
    return isFromThisMachine(request) ? 'granted' : 'outside'
  }

  isToken(text: string): boolean {
    const { token } = this.#options
    return token !== undefined && isSame(text, token)
  }

  /** Without a path, so that it is the browser's own one, whatever a proxy makes of ours. */
  cookieFor(request: IncomingMessage): string {
    const { name, value } = this.#cookie ?? { name: '', value: '' }
    // Of several proxies the first one has met the browser.
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

  /** Browsers say where a request comes from, and no page can make them say something else. */
  #isForeign({ headers }: IncomingMessage): boolean {
    const site = headers['sec-fetch-site']
    // Also where a proxy has changed the host.
    if (site === 'same-origin') return false
    if (site !== undefined && site !== 'none') return true
    const { origin } = headers
    const host = hostOf(headers)
    if (origin === undefined || this.#options.origins.includes(origin)) return false
    return !URL.canParse(origin) || new URL(origin).host !== host
  }
}

/**
 * A page whose name is made to lead to 127.0.0.1 (DNS rebinding) still comes with its own name, and what a proxy passes
 * on comes from anywhere.
 */
function isFromThisMachine({ headers, socket, httpVersion }: IncomingMessage): boolean {
  // No browser speaks HTTP/1.0, but nginx does to what is behind it, and by default without any mark.
  const isPassedOn = httpVersion === '1.0' || Object.keys(headers).some((name) => PROXY_MARK.test(name))
  const host = hostOf(headers) ?? ''
  if (isPassedOn || !/^[\w.:[\]-]+$/.test(host) || !URL.canParse(`http://${host}`)) return false
  return isLoopback(socket.remoteAddress ?? '') && isLoopback(new URL(`http://${host}`).hostname)
}

/** HTTP/2 has another name for it. */
function hostOf(headers: IncomingHttpHeaders & { readonly ':authority'?: string }): string | undefined {
  return headers.host ?? headers[':authority']
}

const PROXY_MARK = /^(?:forwarded|via|x-real-ip|x-forwarded-.*|x-client-ip|true-client-ip|cf-.*)$/

/** In a time that tells nothing about where they differ. */
function isSame(one: string, other: string): boolean {
  return timingSafeEqual(digestOf(one), digestOf(other))
}

function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}
