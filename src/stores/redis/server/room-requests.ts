import { randomBytes } from 'node:crypto'
import {
  type AcquireAnswer,
  type EvictRequest,
  GONE,
  type InspectRequest,
  type ReleaseAnswer,
  type ReleaseRequest,
  type RenewAnswer,
  type RoomPage,
  type Ticket,
  type Wake,
} from '../../../contract/store.ts'
import { acquireAnswer, answerLines, evictAnswer, releaseAnswer, renewAnswer, wakeOf } from './answers.ts'
import { type Batch, batchesOf } from './batches.ts'
import type { MessageSubscription } from './client-link.ts'
import { fenceErrorOf, isMissingRight, layoutErrorOf } from './failures.ts'
import { GrantTerms, sameTerms } from './grant-terms.ts'
import { warnOfMissingMessages } from './missing-messages.ts'
import { NotReplicatedError } from './replication.ts'
import type { RoomNames } from './room-names.ts'
import { roomPage } from './room-pages.ts'
import type { Script } from './scripts.ts'
import { settleMost } from './settle-most.ts'
import type { Partition, Topology } from './topology.ts'
import { type WaitGroup, WaitGroups } from './wait-groups.ts'

/** A caller that waits for the answer to one request. */
interface Pending<Asked extends { readonly key: string }, Answer> {
  readonly key: string
  readonly asked: Asked
  /** Of an acquire: an argument behind its id. */
  readonly extra?: string | undefined
  readonly resolve: (answer: Answer) => void
  readonly reject: (error: unknown) => void
}

/**
 * What a store asks about its rooms, one method for each verb of the contract.
 *
 * Requests of one tick that can go together go in one script call: with many in flight that more than doubles what a
 * connection carries (measured: 2.1 times the bare SET and compare-and-delete), and one alone does not notice.
 */
export class RoomRequests {
  readonly #topology: Topology
  readonly #names: RoomNames
  readonly #inbox: string = randomBytes(9).toString('base64url')
  readonly #terms: GrantTerms
  readonly #groups: WaitGroups | undefined
  readonly #listeners = new Set<{ readonly onWake: (wake: Wake) => void }>()
  #subscription: MessageSubscription | undefined
  #releases: Pending<ReleaseRequest, ReleaseAnswer>[] = []
  #acquires: Pending<Ticket, AcquireAnswer>[] = []

  constructor(topology: Topology, names: RoomNames, options: RoomRequestOptions = {}) {
    const { grantsByMessage = false, leastGroup } = options
    this.#topology = topology
    this.#names = names
    this.#terms = new GrantTerms({ inbox: this.#inbox, grantsByMessage })
    if (leastGroup !== undefined) this.#groups = new WaitGroups(this.#inbox, leastGroup)
  }

  acquire(ticket: Ticket): Promise<AcquireAnswer> {
    return this.acquireWith(ticket, undefined)
  }

  /** `extra`: one more argument for the script. It is left out where other tickets share the call. */
  acquireWith(ticket: Ticket, extra: string | undefined): Promise<AcquireAnswer> {
    this.#gather()
    return new Promise((resolve, reject) => {
      this.#acquires.push({ key: ticket.key, asked: ticket, extra, resolve, reject })
    })
  }

  release(request: ReleaseRequest): Promise<ReleaseAnswer> {
    this.#gather()
    return new Promise((resolve, reject) => {
      this.#releases.push({ key: request.key, asked: request, resolve, reject })
    })
  }

  async renew(tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
    const [first, ...more] = this.#topology.divide(tickets)
    if (first === undefined) return []
    return more.length === 0 ? this.#renewIn(...first) : this.#renewInEach(tickets)
  }

  async listen(onWake: (wake: Wake) => void): Promise<() => void> {
    this.#topology.assertOpen()
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
      throw this.#topology.failure(error)
    }
    return () => {
      this.#listeners.delete(listener)
    }
  }

  async inspect(request: InspectRequest): Promise<RoomPage> {
    try {
      return await roomPage({ topology: this.#topology, names: this.#names }, request)
    } catch (error) {
      throw this.#topology.failure(error)
    }
  }

  async evict({ key, id = '', reason }: EvictRequest): Promise<readonly string[]> {
    const room = this.#names.room(key)
    const [[partition]] = this.#topology.divide([{ key }]) as [[Partition, unknown]]
    try {
      const args = ['', '2', partition.fence, room, id, JSON.stringify(reason)]
      const removed = await partition.run(this.#topology.scripts.evict, args)
      if (typeof removed === 'string' && removed[0] === '?') throw layoutErrorOf(key, room, removed.slice(1))
      const answer = evictAnswer(removed)
      if (answer.hasMore) this.#admitMore(key)
      return answer.removed
    } catch (error) {
      throw this.#topology.failure(error, key)
    }
  }

  async close(): Promise<void> {
    this.#listeners.clear()
    this.#topology.close()
    this.#subscription?.close()
  }

  #gather(): void {
    if (this.#releases.length + this.#acquires.length === 0) queueMicrotask(this.#send)
  }

  readonly #send = (): void => {
    const [releases, acquires] = [this.#releases, this.#acquires]
    this.#releases = []
    this.#acquires = []
    const { scripts } = this.#topology
    // Releases first: a key that is released in the same tick is free for the acquires of this tick.
    for (const [partition, there] of this.#topology.divide(releases)) {
      for (const batch of batchesOf(there, { same: bothCancel, most: MOST_TOGETHER })) {
        const args = this.#argsFor(partition, batch)
        args.push(batch[0].asked.cancel ? 'c' : 'r', this.#inbox)
        for (const { asked } of batch) args.push(asked.id)
        this.#run(partition, { script: scripts.release, args, batch, parse: releaseAnswer })
      }
    }
    for (const [partition, there] of this.#topology.divide(acquires)) {
      for (const batch of batchesOf(there, { same: onSameTerms, most: MOST_TOGETHER })) {
        const args = this.#argsFor(partition, batch)
        this.#terms.addForAcquire(args, batch[0].asked, this.#flow)
        for (const { asked } of batch) args.push(asked.id)
        const [{ extra }] = batch
        if (extra !== undefined && batch.length === 1) args.push(extra)
        this.#run(partition, { script: scripts.acquire, args, batch, parse: this.#parseAcquire })
      }
    }
  }

  /** How the arguments of every script begin: an empty one for its name, the number of keys, the last fence, the rooms. */
  #argsFor({ fence }: Partition, asked: readonly { readonly key: string }[]): string[] {
    const args = ['', String(asked.length + 1), fence]
    for (const { key } of asked) args.push(this.#names.room(key))
    return args
  }

  #run<Asked extends { readonly key: string }, Answer>(
    partition: Partition,
    { script, args, batch, parse }: ScriptCall<Asked, Answer>,
  ): void {
    const deliver = (reply: unknown, doubt?: NotReplicatedError): void => {
      const lines = this.#linesOf(reply, batch)
      let index = 0
      for (const { asked, resolve, reject } of batch) {
        const text = lines[index] ?? ''
        index += 1
        if (text[0] === '!') reject(fenceErrorOf(asked.key, partition.fence))
        else if (text[0] === '?') reject(layoutErrorOf(asked.key, this.#names.room(asked.key), text.slice(1)))
        else if (doubt !== undefined && text[0] === 'h') reject(doubt.asStoreError(asked.key))
        else resolve(parse(text, asked))
        if (text[0] === 'q') notice(partition, text)
      }
    }
    partition
      .run(script, args)
      .then(deliver, (error: unknown) => {
        if (!(error instanceof NotReplicatedError)) throw error
        deliver(error.reply, error)
      })
      .catch((error: unknown) => {
        for (const { asked, reject } of batch) reject(this.#topology.failure(error, asked.key))
      })
  }

  /**
   * A silent server must not cost the leases on the others. Once another one has answered, a silent one gets only a moment
   * more. The answers of its tickets then stay empty.
   */
  async #renewInEach(tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
    const answers: RenewAnswer[] = new Array(tickets.length)
    const numbered = tickets.map((ticket, index) => ({ key: ticket.key, ticket, index }))
    const renewals = this.#topology.divide(numbered).map(async ([partition, there]) => {
      const answered = await this.#renewIn(
        partition,
        there.map(({ ticket }) => ticket),
      )
      for (const [at, { index }] of there.entries()) answers[index] = answered[at] as RenewAnswer
    })
    await settleMost(renewals)
    return answers
  }

  readonly #parseAcquire = (text: string, ticket: Ticket): AcquireAnswer => {
    const answer = acquireAnswer(text)
    if (answer.tag === 'queued') this.#groups?.alone(ticket, { waits: true })
    return answer
  }

  async #renewIn(partition: Partition, tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
    const groups = this.#groups
    const plan = groups?.plan(tickets)
    if (groups === undefined || plan === undefined) return this.#renewEach(partition, tickets)
    const answers: RenewAnswer[] = new Array(tickets.length)
    const renew = async (
      places: readonly number[],
      renewal: (tickets: readonly Ticket[]) => Promise<readonly RenewAnswer[]>,
    ): Promise<void> => {
      const answered = await renewal(places.map((at) => tickets[at] as Ticket))
      for (const [index, at] of places.entries()) answers[at] = answered[index] as RenewAnswer
    }
    const crowds = new Map(plan.crowds)
    const others = renew(plan.single, (alone) => this.#renewEach(partition, alone))
    const inGroups = Array.from(plan.groups, async ([group, places]) => {
      const [{ key }] = places.map((at) => tickets[at]) as [Ticket]
      await renew(places, async (waiters) => {
        const answered = await this.#renewGroup(partition, waiters, { groups, group })
        if (answered.length === 0) crowds.set(key, [...(crowds.get(key) ?? []), ...places])
        return answered
      })
    })
    await Promise.all([others, ...inGroups])
    await Promise.all(
      Array.from(crowds.values(), (places) =>
        renew(places, (waiters) => this.#renewCrowd(partition, waiters, groups)),
      ),
    )
    return answers
  }

  /** One question for the waiters of a group. No answers if they have to be asked about one by one. */
  async #renewGroup(
    partition: Partition,
    waiters: readonly Ticket[],
    { groups, group }: { readonly groups: WaitGroups; readonly group: WaitGroup },
  ): Promise<readonly RenewAnswer[]> {
    // One that was woken has left its group: the same call asks about it.
    if (waiters.length < groups.least)
      return this.#renewBatch(partition, waiters as Batch<Ticket>, group.name)
    const [first] = waiters as Batch<Ticket>
    const args = this.#argsFor(partition, [first])
    this.#terms.addForRenew(args, first, { flow: this.#flow, group: group.name })
    const [text = ''] = await this.#runRenew(partition, args, [first])
    if (text === '-') {
      group.isOver = true
      return []
    }
    const answer = this.#parseRenew(partition, text)
    return waiters.map(() => answer)
  }

  /** Asks about waiters for one key one by one, and makes them a group. */
  async #renewCrowd(
    partition: Partition,
    waiters: readonly Ticket[],
    groups: WaitGroups,
  ): Promise<readonly RenewAnswer[]> {
    const batches = batchesOf(waiters, { same: sameTerms, most: MOST_RENEWALS })
    const answers = batches.map(async (batch) => {
      const name = groups.newName()
      const answered = await this.#renewBatch(partition, batch, `+${name}`)
      groups.together(
        batch.filter((_, index) => answered[index]?.tag === 'queued'),
        name,
      )
      return answered
    })
    return (await Promise.all(answers)).flat()
  }

  async #renewEach(partition: Partition, tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
    const batches = batchesOf(tickets, { same: sameTerms, most: MOST_RENEWALS })
    const answers = await Promise.all(batches.map((batch) => this.#renewBatch(partition, batch)))
    return answers.length === 1 ? (answers[0] ?? []) : answers.flat()
  }

  async #renewBatch(
    partition: Partition,
    tickets: Batch<Ticket>,
    group?: string,
  ): Promise<readonly RenewAnswer[]> {
    const args = this.#argsFor(partition, tickets)
    this.#terms.addForRenew(args, tickets[0], { flow: this.#flow, group })
    for (const { id } of tickets) args.push(id)
    const lines = await this.#runRenew(partition, args, tickets)
    return lines.map((text, index) => {
      const answer = this.#parseRenew(partition, text)
      if (answer.tag !== 'queued') this.#groups?.alone(tickets[index] as Ticket, { waits: false })
      return answer
    })
  }

  async #runRenew(
    partition: Partition,
    args: string[],
    asked: readonly Ticket[],
  ): Promise<readonly string[]> {
    try {
      return this.#linesOf(await partition.run(this.#topology.scripts.renew, args), asked)
    } catch (error) {
      throw this.#topology.failure(error)
    }
  }

  /** A key that something else uses must not stop the renewal of the others. */
  #parseRenew(partition: Partition, text: string): RenewAnswer {
    if (text[0] === 'q') notice(partition, text)
    return text[0] === '?' ? GONE : renewAnswer(text)
  }

  /**
   * The line of each ticket. The lines after them are handled first, so that a woken ticket asks with the next request that
   * is written.
   */
  #linesOf(reply: unknown, asked: readonly { readonly key: string }[]): readonly string[] {
    const lines = answerLines(reply, asked.length)
    if (lines.length === asked.length) return lines
    for (const line of lines.slice(asked.length)) {
      const rest = line.slice(1)
      if (line[0] === '*') this.#wake(wakeOf(rest))
      else this.#admitMore((asked[Number(rest)] as { readonly key: string }).key)
    }
    return lines.slice(0, asked.length)
  }

  /** A release that matches no ticket lets the server admit more waiters. If it is lost, the next request of an admitted one does. */
  #admitMore(key: string): void {
    this.release({ key, id: '', cancel: false }).catch(() => {})
  }

  get #flow(): MessageSubscription['flow'] {
    return this.#subscription?.flow ?? 'none'
  }

  #subscribe(): MessageSubscription {
    return this.#topology.subscribe(this.#inbox, {
      onMessage: (message) => this.#wake(wakeOf(message)),
      onResubscribed: () => this.#wake({ tag: 'all' }),
    })
  }

  #wake(wake: Wake): void {
    for (const { onWake } of this.#listeners) onWake(wake)
  }
}

export interface RoomRequestOptions {
  /** Whether the message to a waiter may be its lease. Default: false. */
  readonly grantsByMessage?: boolean | undefined
  /** Of how many waiters for one key a group is made at least; see wait-groups.ts. Default: they are never made a group. */
  readonly leastGroup?: number | undefined
}

/** One script call. */
interface ScriptCall<Asked extends { readonly key: string }, Answer> {
  readonly script: Script
  readonly args: string[]
  readonly batch: readonly Pending<Asked, Answer>[]
  readonly parse: (text: string, asked: Asked) => Answer
}

/** A script that takes or gives back so many rooms keeps the server busy for less than a millisecond. */
const MOST_TOGETHER = 100
/** Renewals can wait, and are cheaper the more of them share a call. */
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

/** The line of a waiter ends with the time after which it asks again, and the server's time. */
function notice(partition: Partition, line: string): void {
  partition.awaited?.(Number(line.split(' ').at(-2)?.replace('q', '')))
}
