import { randomBytes } from 'node:crypto'
import type {
  AcquireAnswer,
  EvictRequest,
  InspectRequest,
  ReleaseAnswer,
  ReleaseRequest,
  RenewAnswer,
  RoomPage,
  Store,
  Ticket,
  Wake,
} from '../../../contract/store.ts'
import { InvalidArgumentError } from '../../../errors.ts'
import { acquireAnswer, answerLines, evictAnswer, releaseAnswer, renewAnswer } from './answers.ts'
import { ClusterServers } from '../cluster/servers.ts'
import type { ClusterLink, RedisLink, Subscription } from './client-link.ts'
import { fenceErrorOf, isMissingRight, layoutErrorOf } from './failures.ts'
import { mostOf } from './settle-most.ts'
import { warnOfMissingMessages } from './missing-messages.ts'
import { OneServer } from './single-server.ts'
import { NotReplicatedError } from './replication.ts'
import { RoomNames } from './room-names.ts'
import { roomPage } from './room-pages.ts'
import { type Run, runsOf } from './batches.ts'
import type { Script, Scripts } from './scripts.ts'
import type { Place, Servers } from './topology.ts'
import { sameTerms, Terms } from './grant-terms.ts'

export interface RedisStoreSettings {
  readonly prefix: string
  readonly replicas: number
  /** Of one server. Default: those for a server that decides alone. */
  readonly scripts?: Scripts
}

/** Somebody who waits for the answer to one request. */
interface Pending<Asked extends { readonly key: string }, Answer> {
  readonly key: string
  readonly asked: Asked
  readonly proposal?: string | undefined
  readonly resolve: (answer: Answer) => void
  readonly reject: (error: unknown) => void
}

/**
 * Requests of one tick that can go together go in one script call: with many in flight that more than doubles what a
 * connection carries (measured: 2.1 times the bare SET and compare-and-delete), and one alone does not notice.
 */
export class RedisStore implements Store {
  readonly name = 'redis'
  readonly #servers: Servers
  readonly #names: RoomNames
  readonly #inbox: string = randomBytes(9).toString('base64url')
  readonly #terms: Terms
  readonly #listeners = new Set<{ readonly onWake: (wake: Wake) => void }>()
  #subscription: Subscription | undefined
  #releases: Pending<ReleaseRequest, ReleaseAnswer>[] = []
  #acquires: Pending<Ticket, AcquireAnswer>[] = []

  constructor(link: RedisLink | ClusterLink, { prefix, replicas, scripts }: RedisStoreSettings) {
    const start = link.keyPrefix + prefix
    // The servers look at the first braces only, and then take the whole name: a script's keys would be all over the place.
    if ('seeds' in link && /^[^{]*\{\}/.test(start)) {
      throw new InvalidArgumentError(
        `Expected \`prefix\` to have no {} before other braces on a cluster, got ${JSON.stringify(start)}.`,
      )
    }
    this.#names = new RoomNames(start)
    const options = { names: this.#names, replicas }
    this.#servers =
      'seeds' in link ? new ClusterServers(link, options) : new OneServer(link, { ...options, scripts })
    this.#terms = new Terms(this.#inbox)
  }

  acquire(ticket: Ticket): Promise<AcquireAnswer> {
    return this.vote(ticket, undefined)
  }

  /** An acquire by the voting scripts. They look at the proposal where the ticket comes alone; see proposal.lua. */
  vote(ticket: Ticket, proposal: string | undefined): Promise<AcquireAnswer> {
    this.#gather()
    return new Promise((resolve, reject) => {
      this.#acquires.push({ key: ticket.key, asked: ticket, proposal, resolve, reject })
    })
  }

  release(request: ReleaseRequest): Promise<ReleaseAnswer> {
    this.#gather()
    return new Promise((resolve, reject) => {
      this.#releases.push({ key: request.key, asked: request, resolve, reject })
    })
  }

  async renew(tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
    const [first, ...more] = this.#servers.divide(tickets)
    if (first === undefined) return []
    return more.length === 0 ? this.#renewIn(...first) : this.#renewInEach(tickets)
  }

  async listen(onWake: (wake: Wake) => void): Promise<() => void> {
    this.#servers.assertOpen()
    const listener = { onWake }
    this.#listeners.add(listener)
    this.#subscription ??= this.#subscribe()
    const subscription = this.#subscription
    try {
      await subscription.flowing
    } catch (error) {
      if (this.#subscription === subscription) this.#subscription = undefined
      this.#listeners.delete(listener)
      if (isMissingRight(error)) warnOfMissingMessages(this.#names)
      throw this.#servers.failure(error)
    }
    return () => {
      this.#listeners.delete(listener)
    }
  }

  async inspect(request: InspectRequest): Promise<RoomPage> {
    try {
      return await roomPage({ servers: this.#servers, names: this.#names }, request)
    } catch (error) {
      throw this.#servers.failure(error)
    }
  }

  async evict({ key, id = '', reason }: EvictRequest): Promise<readonly string[]> {
    const room = this.#names.room(key)
    const [[place]] = this.#servers.divide([{ key }]) as [[Place, unknown]]
    try {
      const args = ['', '2', place.fence, room, id, JSON.stringify(reason)]
      const removed = await place.run(this.#servers.scripts.evict, args)
      if (typeof removed === 'string' && removed[0] === '?') throw layoutErrorOf(key, room, removed.slice(1))
      const answer = evictAnswer(removed)
      if (answer.hasMore) this.#settle(key)
      return answer.removed
    } catch (error) {
      throw this.#servers.failure(error, key)
    }
  }

  async close(): Promise<void> {
    this.#listeners.clear()
    this.#servers.close()
    this.#subscription?.close()
  }

  #gather(): void {
    if (this.#releases.length + this.#acquires.length === 0) queueMicrotask(this.#send)
  }

  readonly #send = (): void => {
    const [releases, acquires] = [this.#releases, this.#acquires]
    this.#releases = []
    this.#acquires = []
    const { scripts } = this.#servers
    // Releases first: a key that is given back in the same tick is free for who asks for it.
    for (const [place, there] of this.#servers.divide(releases)) {
      for (const batch of runsOf(there, { same: bothCancel, most: MOST_TOGETHER })) {
        const args = this.#argsFor(place, batch)
        args.push(batch[0].asked.cancel ? 'c' : 'r', this.#inbox)
        for (const { asked } of batch) args.push(asked.id)
        this.#ask(place, { script: scripts.release, args, batch, parse: releaseAnswer })
      }
    }
    for (const [place, there] of this.#servers.divide(acquires)) {
      for (const batch of runsOf(there, { same: onSameTerms, most: MOST_TOGETHER })) {
        const args = this.#argsFor(place, batch)
        this.#terms.addForAcquire(args, batch[0].asked, this.#listens)
        for (const { asked } of batch) args.push(asked.id)
        const [{ proposal }] = batch
        if (proposal !== undefined && batch.length === 1) args.push(proposal)
        this.#ask(place, { script: scripts.acquire, args, batch, parse: acquireAnswer })
      }
    }
  }

  /** What every script begins with: a place for its name, how many keys, the last fence, and the rooms. */
  #argsFor({ fence }: Place, asked: readonly { readonly key: string }[]): string[] {
    const args = ['', String(asked.length + 1), fence]
    for (const { key } of asked) args.push(this.#names.room(key))
    return args
  }

  #ask<Asked extends { readonly key: string }, Answer>(
    place: Place,
    { script, args, batch, parse }: Question<Asked, Answer>,
  ): void {
    const deliver = (reply: unknown, doubt?: NotReplicatedError): void => {
      const lines = this.#linesOf(reply, batch)
      let index = 0
      for (const { asked, resolve, reject } of batch) {
        const text = lines[index] ?? ''
        index += 1
        if (text[0] === '!') reject(fenceErrorOf(asked.key, place.fence))
        else if (text[0] === '?') reject(layoutErrorOf(asked.key, this.#names.room(asked.key), text.slice(1)))
        else if (doubt !== undefined && text[0] === 'h') reject(doubt.asStoreError(asked.key))
        else resolve(parse(text))
        if (text[0] === 'q') notice(place, text)
      }
    }
    place
      .run(script, args)
      .then(deliver, (error: unknown) => {
        if (!(error instanceof NotReplicatedError)) throw error
        deliver(error.reply, error)
      })
      .catch((error: unknown) => {
        for (const { asked, reject } of batch) reject(this.#servers.failure(error, asked.key))
      })
  }

  /**
   * A server that is silent must not cost the leases that are kept elsewhere: once others have answered, it is waited for a
   * moment only, and the places of its tickets stay empty.
   */
  async #renewInEach(tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
    const answers: RenewAnswer[] = new Array(tickets.length)
    const numbered = tickets.map((ticket, index) => ({ key: ticket.key, ticket, index }))
    const renewals = this.#servers.divide(numbered).map(async ([place, there]) => {
      const answered = await this.#renewIn(
        place,
        there.map(({ ticket }) => ticket),
      )
      for (const [at, { index }] of there.entries()) answers[index] = answered[at] as RenewAnswer
    })
    await mostOf(renewals)
    return answers
  }

  async #renewIn(place: Place, tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
    const batches = runsOf(tickets, { same: sameTerms, most: MOST_RENEWALS })
    const answers = await Promise.all(batches.map((batch) => this.#renewBatch(place, batch)))
    return answers.length === 1 ? (answers[0] ?? []) : answers.flat()
  }

  async #renewBatch(place: Place, tickets: Run<Ticket>): Promise<readonly RenewAnswer[]> {
    const args = this.#argsFor(place, tickets)
    this.#terms.addForRenew(args, tickets[0], this.#listens)
    for (const { id } of tickets) args.push(id)
    try {
      // One key that is not ours must not stop the renewal of the others.
      return this.#linesOf(await place.run(this.#servers.scripts.renew, args), tickets).map((text) => {
        if (text[0] === 'q') notice(place, text)
        return text[0] === '?' ? GONE : renewAnswer(text)
      })
    } catch (error) {
      throw this.#servers.failure(error)
    }
  }

  /** The line of each ticket. What follows them is done first: whoever was woken asks with the next request that is written. */
  #linesOf(reply: unknown, asked: readonly { readonly key: string }[]): readonly string[] {
    const lines = answerLines(reply, asked.length)
    if (lines.length === asked.length) return lines
    for (const line of lines.slice(asked.length)) {
      const name = line.slice(1)
      if (line[0] === '*') this.#wake({ tag: 'ticket', id: name })
      else this.#settle((asked[Number(name)] as { readonly key: string }).key)
    }
    return lines.slice(0, asked.length)
  }

  /** Forgets nobody, which admits who is next. If this does not arrive, those who were admitted go on with it. */
  #settle(key: string): void {
    this.release({ key, id: '', cancel: false }).catch(() => {})
  }

  get #listens(): boolean {
    return this.#subscription?.provesLife === true
  }

  #subscribe(): Subscription {
    return this.#servers.subscribe(this.#inbox, {
      onMessage: (id) => this.#wake({ tag: 'ticket', id }),
      onResubscribed: () => this.#wake({ tag: 'all' }),
    })
  }

  #wake(wake: Wake): void {
    for (const { onWake } of this.#listeners) onWake(wake)
  }
}

/** One script call. */
interface Question<Asked extends { readonly key: string }, Answer> {
  readonly script: Script
  readonly args: string[]
  readonly batch: readonly Pending<Asked, Answer>[]
  readonly parse: (text: string) => Answer
}

const GONE: RenewAnswer = { tag: 'gone', evicted: false }

/** A script that takes or gives back so many rooms keeps the server busy for less than a millisecond. */
const MOST_TOGETHER = 100
/** Renewals are not in a hurry, and cheaper the more of them go together. */
const MOST_RENEWALS = 500
function bothCancel(
  one: { readonly asked: ReleaseRequest },
  other: { readonly asked: ReleaseRequest },
): boolean {
  return one.asked.cancel === other.asked.cancel
}

function onSameTerms(one: { readonly asked: Ticket }, other: { readonly asked: Ticket }): boolean {
  return sameTerms(one.asked, other.asked)
}

/** The line of a ticket that waits ends with when it asks again. */
function notice(place: Place, line: string): void {
  place.awaited?.(Number(line.slice(line.lastIndexOf(' ') + 1).replace('q', '')))
}
