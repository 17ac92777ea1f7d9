import { closedStoreError } from '../../../base/closed.ts'
import { isHoldfastError, type StoreError } from '../../../errors.ts'
import type { EtcdTls } from '../options.ts'
import { loadDial, type MemberStream, type StreamListener } from './connection.ts'
import {
  ConnectionError,
  isAuthOff,
  isLeaseGone,
  isLeaseThere,
  isOfMember,
  needsNewToken,
  REFUSED,
  refusalOf,
  refused,
  unavailable,
} from './failures.ts'
import { Member } from './member.ts'
import { AUTHENTICATE, encoded, type Method } from './messages.ts'
import { MessageReader } from './wire.ts'

export interface EtcdClusterOptions {
  readonly endpoints: readonly string[]
  readonly auth: { readonly username: string; readonly password: string } | undefined
  readonly tls: EtcdTls
  /** For error messages. */
  readonly prefix: string
}

export interface Replied<Reply> {
  readonly reply: Reply
  /** An earlier try of this request got no answer, and may be carried out later than every request from now on. */
  readonly isInDoubt: boolean
}

/**
 * The members of one etcd. A request goes to the member that answered last. If that one fails or is silent, the request goes to
 * each of the others once. All requests of the store may be repeated, so a second try does no harm.
 */
export class Cluster {
  readonly #options: EtcdClusterOptions
  /** Undefined before the first request, which loads the package that speaks gRPC. */
  #members: readonly Member[] | undefined
  #current = 0
  #token: Promise<string> | undefined
  #isClosed = false
  /** The errors of requests that one member has refused, and to which another one gave no answer. */
  readonly #inDoubt = new WeakSet<StoreError>()

  constructor(options: EtcdClusterOptions) {
    this.#options = options
  }

  /** @throws {StoreError}, and {@link StatusError} when a lease is not there, or is there already. */
  async ask<Request, Reply>(method: Method<Request, Reply>, request: Request): Promise<Replied<Reply>> {
    const message = encoded(method, request)
    const members = this.#members ?? (await this.#load())
    let isInDoubt = false
    let refusal: StoreError | undefined
    let refusalOfMember: StoreError | undefined
    let failure: unknown
    let tokens = 0
    for (let tries = 0; tries < members.length; ) {
      this.#assertOpen()
      const index = this.#current
      const member = members[index] as Member
      const token = this.#tokenOf(member)
      try {
        const bytes = await member.request(
          { path: method.path, message, token: await token },
          this.#answerLimitMs,
        )
        return { reply: method.decode(new MessageReader(bytes)), isInDoubt }
      } catch (error) {
        if (needsNewToken(error) && this.#options.auth !== undefined && tokens < MOST_TOKENS) {
          tokens += 1
          this.#drop(token)
          continue
        }
        const sentence = refusalOf(error, this.#options.prefix)
        if (sentence !== undefined) {
          if (isOfMember(error)) refusalOfMember = refused(sentence, error)
          else refusal = refused(sentence, error)
        } else if (isLeaseGone(error) || isLeaseThere(error)) throw error
        else if (!isTransient(error)) throw this.#noted(refused(REFUSED, error), failure)
        else failure = error
        // The request may have reached the member: there is never proof that it has not.
        isInDoubt = true
        tries += 1
        this.#leave(index)
      }
    }
    this.#assertOpen()
    if (refusal === undefined && failure !== undefined) throw unavailable(failure, refusalOfMember?.message)
    throw this.#noted(refusal ?? (refusalOfMember as StoreError), failure)
  }

  /** Whether a request that failed with this error may be carried out later. */
  leavesDoubt(error: unknown): boolean {
    return isHoldfastError(error, 'store-unavailable') || this.#inDoubt.has(error as StoreError)
  }

  /** A stream to the member that answered last. When it ends, the next stream goes to another member. */
  async openStream(method: Method<never, unknown>, listener: StreamListener): Promise<MemberStream> {
    const members = this.#members ?? (await this.#load())
    this.#assertOpen()
    const index = this.#current
    const member = members[index] as Member
    const token = this.#tokenOf(member)
    const request = { path: method.path, token: await token }
    this.#assertOpen()
    return member.openStream(request, {
      onMessage: listener.onMessage,
      onEnd: (error) => {
        if (needsNewToken(error)) this.#drop(token)
        else this.#leave(index)
        listener.onEnd(error)
      },
    })
  }

  /** A watch was refused, and may only need a new token: a token stays valid only while it is used. */
  forgetToken(): void {
    this.#token = undefined
  }

  close(): void {
    this.#isClosed = true
    for (const member of this.#members ?? []) member.close()
  }

  #noted(refusal: StoreError, failure: unknown): StoreError {
    if (failure !== undefined) this.#inDoubt.add(refusal)
    return refusal
  }

  async #load(): Promise<readonly Member[]> {
    // The store exists already: `store-refused` says that asking again is in vain.
    const dial = await loadDial().catch((error: unknown) => {
      throw isHoldfastError(error, 'invalid-argument') ? refused(error.message, error) : error
    })
    const { endpoints, tls } = this.#options
    this.#members ??= endpoints.map((url) => new Member({ url, tls, dial }))
    return this.#members
  }

  /** How long one member may take. If there are others to ask, it is short. */
  get #answerLimitMs(): number {
    return this.#options.endpoints.length === 1 ? ALONE_MS : TRY_MS
  }

  #leave(index: number): void {
    if (this.#current === index) this.#current = (index + 1) % this.#options.endpoints.length
  }

  /** Drops this token and no newer one. A token costs etcd much, and a thousand requests may find the old one expired at once. */
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
      const request = { path: AUTHENTICATE.path, message: encoded(AUTHENTICATE, credentials), token: '' }
      const bytes = await member.request(request, this.#answerLimitMs)
      return AUTHENTICATE.decode(new MessageReader(bytes))
    } catch (error) {
      // Authentication is off. Whether that is intended is not for the store to judge.
      if (isAuthOff(error)) return ''
      throw error
    }
  }

  #assertOpen(): void {
    if (this.#isClosed) {
      throw closedStoreError('etcdStore()')
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
/** As long as etcd itself waits for an answer of its other members. */
const ALONE_MS = 5000
/** A token may expire between two requests. If more tokens fail, something else is wrong. */
const MOST_TOKENS = 2
