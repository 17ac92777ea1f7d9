import { randomBytes } from 'node:crypto'
import type {
  AcquireAnswer,
  EvictRequest,
  InspectRequest,
  ReleaseAnswer,
  ReleaseRequest,
  RenewAnswer,
  RoomPage,
  RoomView,
  Store,
  Ticket,
  Wake,
} from '../../contract/store.ts'
import { acquireAnswer, releaseAnswer, renewAnswer } from './answers.ts'
import type { RedisLink, Subscription } from './connection.ts'
import { layoutErrorOf } from './failures.ts'
import { Line } from './line.ts'
import { NotReplicatedError } from './replicas.ts'
import { RoomNames } from './room-names.ts'
import { roomView } from './room-view.ts'
import { type Run, runsOf } from './runs.ts'
import {
  acquireScript,
  evictScript,
  inspectScript,
  releaseScript,
  renewScript,
  type Script,
} from './scripts.ts'
import { sameTerms, Terms } from './terms.ts'

/** Somebody who waits for the answer to one request. */
interface Pending<Asked extends { readonly key: string }, Answer> {
  readonly key: string
  readonly asked: Asked
  readonly resolve: (answer: Answer) => void
  readonly reject: (error: unknown) => void
}

/**
 * Requests of one tick that can go together go in one script call: with many in flight that more than doubles what a
 * connection carries (measured: 2.1 times the bare SET and compare-and-delete), and one alone does not notice.
 */
export class RedisStore implements Store {
  readonly name = 'redis'
  readonly #link: RedisLink
  readonly #line: Line
  readonly #names: RoomNames
  readonly #inbox: string = randomBytes(9).toString('base64url')
  readonly #terms: Terms
  readonly #listeners = new Set<{ readonly onWake: (wake: Wake) => void }>()
  #subscription: Subscription | undefined
  #releases: Pending<ReleaseRequest, ReleaseAnswer>[] = []
  #acquires: Pending<Ticket, AcquireAnswer>[] = []

  constructor(link: RedisLink, { prefix, replicas }: { readonly prefix: string; readonly replicas: number }) {
    this.#link = link
    this.#names = new RoomNames(link.keyPrefix + prefix)
    this.#line = new Line(link, { probe: ['', '1', this.#names.probe, this.#names.channel('')], replicas })
    this.#terms = new Terms(this.#inbox)
  }

  acquire(ticket: Ticket): Promise<AcquireAnswer> {
    this.#gather()
    return new Promise((resolve, reject) => {
      this.#acquires.push({ key: ticket.key, asked: ticket, resolve, reject })
    })
  }

  release(request: ReleaseRequest): Promise<ReleaseAnswer> {
    this.#gather()
    return new Promise((resolve, reject) => {
      this.#releases.push({ key: request.key, asked: request, resolve, reject })
    })
  }

  async renew(tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
    const batches = runsOf(tickets, { same: sameTerms, most: MOST_RENEWALS })
    const answers = await Promise.all(batches.map((batch) => this.#renewBatch(batch)))
    return answers.length === 1 ? (answers[0] ?? []) : answers.flat()
  }

  async listen(onWake: (wake: Wake) => void): Promise<() => void> {
    this.#line.assertOpen()
    const listener = { onWake }
    this.#listeners.add(listener)
    this.#subscription ??= this.#subscribe()
    const subscription = this.#subscription
    try {
      await subscription.flowing
    } catch (error) {
      if (this.#subscription === subscription) this.#subscription = undefined
      this.#listeners.delete(listener)
      throw this.#line.failure(error)
    }
    return () => {
      this.#listeners.delete(listener)
    }
  }

  async inspect({ prefix, cursor, count }: InspectRequest): Promise<RoomPage> {
    let { scan, after } = cursor === undefined ? FIRST_PAGE : (JSON.parse(cursor) as PageStart)
    try {
      const exact = cursor === undefined ? await this.#look([prefix]) : []
      if (exact.length > 0) return { rooms: exact, next: JSON.stringify(FIRST_PAGE) }
      for (let scans = 0; scans < MOST_SCANS; scans += 1) {
        const { next, keys } = await this.#scan(scan, prefix)
        // In an order of our own, so that a page can go on inside what one SCAN returned.
        const rest = keys.filter((key) => key > after && key !== prefix).sort()
        const page = rest.slice(0, count)
        const rooms = await this.#look(page)
        if (rest.length > count) return { rooms, next: JSON.stringify({ scan, after: page.at(-1) }) }
        if (next === '0') return { rooms, next: undefined }
        scan = next
        after = ''
        if (rooms.length > 0) return { rooms, next: JSON.stringify({ scan, after }) }
      }
      return { rooms: [], next: JSON.stringify({ scan, after }) }
    } catch (error) {
      throw this.#line.failure(error)
    }
  }

  async evict({ key, id = '', reason }: EvictRequest): Promise<readonly string[]> {
    const room = this.#names.room(key)
    try {
      const removed = await this.#line.run(evictScript, [
        '',
        '2',
        this.#names.fence,
        room,
        id,
        JSON.stringify(reason),
      ])
      if (typeof removed === 'string') throw layoutErrorOf(key, room, removed.slice(1))
      const [rest, ...ids] = removed as [string, ...string[]]
      if (rest === '+') this.#settle(key)
      return ids
    } catch (error) {
      throw this.#line.failure(error, key)
    }
  }

  async close(): Promise<void> {
    this.#listeners.clear()
    this.#line.close()
    this.#subscription?.close()
    this.#link.close?.()
  }

  #gather(): void {
    if (this.#releases.length + this.#acquires.length === 0) queueMicrotask(this.#send)
  }

  readonly #send = (): void => {
    const [releases, acquires] = [this.#releases, this.#acquires]
    this.#releases = []
    this.#acquires = []
    // Releases first: a key that is given back in the same tick is free for who asks for it.
    for (const batch of runsOf(releases, { same: bothCancel, most: MOST_TOGETHER })) {
      const args = this.#argsFor(batch)
      args.push(batch[0].asked.cancel ? 'c' : 'r', this.#inbox)
      for (const { asked } of batch) args.push(asked.id)
      this.#ask(releaseScript, args, { batch, parse: releaseAnswer })
    }
    for (const batch of runsOf(acquires, { same: onSameTerms, most: MOST_TOGETHER })) {
      const args = this.#argsFor(batch)
      this.#terms.addForAcquire(args, batch[0].asked)
      for (const { asked } of batch) args.push(asked.id)
      this.#ask(acquireScript, args, { batch, parse: acquireAnswer })
    }
  }

  /** What every script begins with: a place for its name, how many keys, the last fence, and the rooms. */
  #argsFor(asked: readonly { readonly key: string }[]): string[] {
    const args = ['', String(asked.length + 1), this.#names.fence]
    for (const { key } of asked) args.push(this.#names.room(key))
    return args
  }

  #ask<Asked extends { readonly key: string }, Answer>(
    script: Script,
    args: string[],
    {
      batch,
      parse,
    }: { readonly batch: readonly Pending<Asked, Answer>[]; readonly parse: (text: string) => Answer },
  ): void {
    const deliver = (reply: unknown, doubt?: NotReplicatedError): void => {
      const lines = this.#linesOf(reply, batch)
      let index = 0
      for (const { asked, resolve, reject } of batch) {
        const text = lines[index] ?? ''
        index += 1
        if (text[0] === '?') reject(layoutErrorOf(asked.key, this.#names.room(asked.key), text.slice(1)))
        else if (doubt !== undefined && text[0] === 'h') reject(doubt.asStoreError(asked.key))
        else resolve(parse(text))
      }
    }
    this.#line
      .run(script, args)
      .then(deliver, (error: unknown) => {
        if (!(error instanceof NotReplicatedError)) throw error
        deliver(error.reply, error)
      })
      .catch((error: unknown) => {
        for (const { asked, reject } of batch) reject(this.#line.failure(error, asked.key))
      })
  }

  async #renewBatch(tickets: Run<Ticket>): Promise<readonly RenewAnswer[]> {
    const args = this.#argsFor(tickets)
    this.#terms.addForRenew(args, tickets[0])
    for (const { id } of tickets) args.push(id)
    try {
      // One key that is not ours must not stop the renewal of the others.
      return this.#linesOf(await this.#line.run(renewScript, args), tickets).map((text) =>
        text[0] === '?' ? GONE : renewAnswer(text),
      )
    } catch (error) {
      throw this.#line.failure(error)
    }
  }

  /** The line of each ticket. What follows them is done first: whoever was woken asks with the next request that is written. */
  #linesOf(reply: unknown, asked: readonly { readonly key: string }[]): readonly string[] {
    const lines = (reply as string).split('\n')
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

  /** One SCAN from where the last one ended, and the keys of the rooms it found. */
  async #scan(scan: string, prefix: string): Promise<{ readonly next: string; readonly keys: string[] }> {
    const args = [scan, 'MATCH', this.#names.pattern(prefix), 'COUNT', String(SCANNED_TOGETHER)]
    const [next, rooms] = (await this.#line.send('SCAN', args)) as [string, string[]]
    return { next, keys: [...new Set(rooms.map((room) => this.#names.keyOf(room)))] }
  }

  async #look(keys: readonly string[]): Promise<readonly RoomView[]> {
    if (keys.length === 0) return []
    const args = ['', String(keys.length), ...keys.map((key) => this.#names.room(key))]
    const [nowMs, ...contents] = (await this.#line.runUnproven(inspectScript, args)) as [
      string,
      ...(string | string[])[],
    ]
    return keys.flatMap((key, index) => roomView(key, contents[index] ?? '', Number(nowMs)) ?? [])
  }

  #subscribe(): Subscription {
    return this.#link.subscribe(this.#names.channel(this.#inbox), {
      onMessage: (id) => this.#wake({ tag: 'ticket', id }),
      onResubscribed: () => this.#wake({ tag: 'all' }),
    })
  }

  #wake(wake: Wake): void {
    for (const { onWake } of this.#listeners) onWake(wake)
  }
}

/** Where a page of rooms starts: a cursor of SCAN, and after which of the keys it returns. */
interface PageStart {
  readonly scan: string
  readonly after: string
}

const FIRST_PAGE: PageStart = { scan: '0', after: '' }

const GONE: RenewAnswer = { tag: 'gone', evicted: false }

/** A script that takes or gives back so many rooms keeps the server busy for less than a millisecond. */
const MOST_TOGETHER = 100
/** Renewals are not in a hurry, and cheaper the more of them go together. */
const MOST_RENEWALS = 500
/** How many keys of the database one SCAN looks at: a fraction of a millisecond. */
const SCANNED_TOGETHER = 1000
/** How many SCANs that find nothing are made for one page. */
const MOST_SCANS = 20

function bothCancel(
  one: { readonly asked: ReleaseRequest },
  other: { readonly asked: ReleaseRequest },
): boolean {
  return one.asked.cancel === other.asked.cancel
}

function onSameTerms(one: { readonly asked: Ticket }, other: { readonly asked: Ticket }): boolean {
  return sameTerms(one.asked, other.asked)
}
