import type { ConnectionOptions } from 'node:tls'
import { StoreError } from '../../errors.ts'
import {
  ConnectionError,
  isAuthOff,
  isLeaseGone,
  isLeaseThere,
  needsNewToken,
  REFUSED,
  refusalOf,
  refused,
  unavailable,
} from './failures.ts'
import { type Conversation, type Ears, Member } from './member.ts'
import { AUTHENTICATE, encoded, type Method } from './messages.ts'
import { MessageReader } from './wire.ts'

export interface ClusterOptions {
  readonly endpoints: readonly string[]
  readonly auth: { readonly username: string; readonly password: string } | undefined
  readonly tls: ConnectionOptions
  /** For messages. */
  readonly prefix: string
}

export interface Told<Reply> {
  readonly reply: Reply
  /** An earlier try of this request got no answer: it may arrive later than everything that is asked from now on. */
  readonly isDoubtful: boolean
}

/**
 * The members of one etcd. A request goes to the one that answered last, and where that one fails or says nothing, to the
 * others in turn, once each. All requests of the store may be repeated, so nothing is lost by asking twice.
 */
export class Cluster {
  readonly #members: readonly Member[]
  readonly #options: ClusterOptions
  #current = 0
  #token: Promise<string> | undefined
  #isClosed = false

  constructor(options: ClusterOptions) {
    this.#options = options
    this.#members = options.endpoints.map((url) => new Member(url, options.tls))
  }

  /** @throws {StoreError}, and {@link StatusError} when a lease is not there, or is there already. */
  async ask<Request, Reply>(method: Method<Request, Reply>, request: Request): Promise<Told<Reply>> {
    const frame = encoded(method, request)
    let isDoubtful = false
    let refusal: StoreError | undefined
    let failure: unknown
    let tokens = 0
    for (let tries = 0; tries < this.#members.length; ) {
      this.#assertOpen()
      const index = this.#current
      const member = this.#members[index] as Member
      const token = this.#tokenOf(member)
      try {
        const options = { token: await token, timeoutMs: this.#patienceMs }
        const bytes = await member.request(method.path, frame, options)
        return { reply: method.decode(new MessageReader(bytes)), isDoubtful }
      } catch (error) {
        if (needsNewToken(error) && this.#options.auth !== undefined && tokens < MOST_TOKENS) {
          tokens += 1
          this.#drop(token)
          continue
        }
        const sentence = refusalOf(error, this.#options.prefix)
        if (sentence !== undefined) refusal = refused(sentence, error)
        else if (isLeaseGone(error) || isLeaseThere(error)) throw error
        else if (!isTransient(error)) throw refused(REFUSED, error)
        isDoubtful ||= !(error instanceof ConnectionError && error.unsent)
        failure = error
        tries += 1
        this.#leave(index)
      }
    }
    this.#assertOpen()
    throw refusal ?? unavailable(failure)
  }

  /** A stream to the member that answered last. When it ends the next one is for another member. */
  async converse(method: Method<never, unknown>, ears: Ears): Promise<Conversation> {
    this.#assertOpen()
    const index = this.#current
    const member = this.#members[index] as Member
    const token = this.#tokenOf(member)
    const options = { token: await token }
    this.#assertOpen()
    return member.converse(method.path, {
      ...options,
      ears: {
        onMessage: ears.onMessage,
        onEnd: (error) => {
          if (needsNewToken(error)) this.#drop(token)
          else this.#leave(index)
          ears.onEnd(error)
        },
      },
    })
  }

  /** The token is good for as long as it is used: a watch that was refused may only need a new one. */
  forgetToken(): void {
    this.#token = undefined
  }

  close(): void {
    this.#isClosed = true
    for (const member of this.#members) member.close()
  }

  /** With others to ask, nobody waits long for one. */
  get #patienceMs(): number {
    return this.#members.length === 1 ? ALONE_MS : TRY_MS
  }

  #leave(index: number): void {
    if (this.#current === index) this.#current = (index + 1) % this.#members.length
  }

  /** Only the one that was found to be no good: etcd works hard for each, and a thousand requests may find it at once. */
  #drop(token: Promise<string> | string): void {
    if (this.#token === token) this.#token = undefined
  }

  #tokenOf(member: Member): Promise<string> | string {
    const { auth } = this.#options
    if (auth === undefined) return ''
    if (this.#token === undefined) {
      const token = this.#authenticate(member, { name: auth.username, password: auth.password })
      this.#token = token
      token.catch(() => this.#drop(token))
    }
    return this.#token
  }

  async #authenticate(member: Member, credentials: { name: string; password: string }): Promise<string> {
    try {
      const options = { token: '', timeoutMs: this.#patienceMs }
      const bytes = await member.request(AUTHENTICATE.path, encoded(AUTHENTICATE, credentials), options)
      return AUTHENTICATE.decode(new MessageReader(bytes))
    } catch (error) {
      // It asks nobody for a name. Whether that is meant is not for us to say.
      if (isAuthOff(error)) return ''
      throw error
    }
  }

  #assertOpen(): void {
    if (this.#isClosed) {
      throw new StoreError('store-unavailable', 'Expected an open etcd store, got one that was closed.')
    }
  }
}

/** UNKNOWN (a proposal that was dropped), DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, ABORTED, INTERNAL, UNAVAILABLE, CANCELLED. */
const TRANSIENT = new Set([1, 2, 4, 8, 10, 13, 14])

function isTransient(error: unknown): boolean {
  if (error instanceof ConnectionError) return true
  return error instanceof Error && 'status' in error && TRANSIENT.has(Number(error.status))
}

const TRY_MS = 1000
/** As long as etcd itself waits for an answer of its members. */
const ALONE_MS = 5000
/** One may expire between two requests; more of them mean that something else is wrong. */
const MOST_TOKENS = 2
