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
} from '../../src/contract/store.ts'
import { StoreError } from '../../src/errors.ts'

export type Verb = 'acquire' | 'acquireAll' | 'renew' | 'release' | 'evict' | 'inspect'

/**
 * The fate of one request. `answer`: all goes well · `lose request`: it never arrives · `lose reply`: the store acts,
 * and the reply is lost · `fail`: it rejects without having acted · `fail late`: it acts, and rejects · `refuse`: a
 * definite no · a {@link Letter}: on its way until the test lets it arrive, and answered when the test says so.
 */
export type Fate = 'answer' | 'lose request' | 'lose reply' | 'fail' | 'fail late' | 'refuse' | Letter

/** One request in the hands of the test. */
export class Letter {
  #arrive: () => unknown = () => {
    throw new Error('This letter was never sent')
  }
  #answer: (answer: unknown) => void = () => {}
  #reply: unknown

  /** Lets the request arrive: the store acts on it now, and its reply is on the way. */
  arrive(): this {
    this.#reply = this.#arrive()
    // The engine must not see a rejection before the reply is delivered.
    Promise.resolve(this.#reply).catch(() => {})
    return this
  }

  /** Lets the reply reach the engine. */
  reply(): void {
    this.#answer(this.#reply)
  }

  send<T>(act: () => T): Promise<T> {
    this.#arrive = act
    return new Promise((resolve) => {
      this.#answer = resolve as (answer: unknown) => void
    })
  }
}

export interface Sent {
  readonly verb: Verb
  readonly tickets: readonly Ticket[]
  readonly cancel: boolean
}

/**
 * A store behind a network that the test scripts. Answers are promises, as those of a server are. By default every
 * request is answered; `next` decides the fate of the following requests of one verb, `always` that of all others.
 */
export class ScriptedStore implements Store {
  readonly name = 'scripted'
  readonly real: Store
  /** Every request that was written, also those that were lost. */
  readonly sent: Sent[] = []
  /** Whether wakes reach the engine. */
  wakes = true
  /** The wakes that did not reach the engine. */
  readonly missed: Wake[] = []
  /** Whether `listen` rejects. */
  listenFails = false
  /** `listen` waits for this promise before wakes flow. */
  listenAfter: Promise<void> | undefined
  /** Undefined for a store in which a request is about one key. */
  acquireAll?: Required<Store>['acquireAll']
  /** Each answer waits for it. `undefined`: no answer waits. */
  replyAfter: (() => Promise<void>) | undefined
  /** The error of a request that fails. */
  fails: () => StoreError = unavailable
  closed = 0
  listened = 0
  unlistened = 0
  #deliver: ((wake: Wake) => void) | undefined
  readonly #fates = new Map<Verb, Fate[]>()
  readonly #always = new Map<Verb, Fate>()

  constructor(real: Store, { takesAll = false }: { readonly takesAll?: boolean } = {}) {
    this.real = real
    if (takesAll)
      this.acquireAll = (tickets) =>
        this.#send('acquireAll', { tickets, cancel: false }, () => this.#takeAll(tickets))
  }

  async #takeAll(tickets: readonly Ticket[]): Promise<readonly bigint[] | undefined> {
    const { rooms } = await this.real.inspect({ prefix: '', cursor: undefined, count: 10_000 })
    if (rooms.some((room) => tickets.some(({ key }) => key === room.key))) return undefined
    const answers = await Promise.all(tickets.map((ticket) => this.real.acquire(ticket)))
    return answers.map((answer) => {
      if (answer.tag === 'held') return answer.fence
      throw unavailable()
    })
  }

  /** Sets the fates of the next requests of this verb, one each. */
  next(verb: Verb, ...fates: Fate[]): void {
    this.#fates.set(verb, [...(this.#fates.get(verb) ?? []), ...fates])
  }

  /** Sets the fate of every request of these verbs that `next` does not decide. Default: all verbs. */
  always(fate: Exclude<Fate, Letter>, verbs: readonly Verb[] = VERBS): void {
    for (const verb of verbs) this.#always.set(verb, fate)
  }

  count(verb: Verb): number {
    return this.sent.filter((request) => request.verb === verb).length
  }

  /** Delivers a wake that the store never sent, or sends one again. */
  wake(wake: Wake): void {
    this.#deliver?.(wake)
  }

  acquire(ticket: Ticket): Promise<AcquireAnswer> {
    return this.#send('acquire', { tickets: [ticket], cancel: false }, () => this.real.acquire(ticket))
  }

  renew(tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
    return this.#send('renew', { tickets, cancel: false }, () => this.real.renew(tickets))
  }

  release(request: ReleaseRequest): Promise<ReleaseAnswer> {
    return this.#send('release', { tickets: [], cancel: request.cancel }, () => this.real.release(request))
  }

  inspect(request: InspectRequest): Promise<RoomPage> {
    return this.#send('inspect', { tickets: [], cancel: false }, () => this.real.inspect(request))
  }

  evict(request: EvictRequest): Promise<readonly string[]> {
    return this.#send('evict', { tickets: [], cancel: false }, () => this.real.evict(request))
  }

  async listen(onWake: (wake: Wake) => void): Promise<() => void> {
    this.listened += 1
    if (this.listenFails) throw unavailable()
    await this.listenAfter
    this.#deliver = onWake
    const stop = await this.real.listen?.((wake) => {
      if (this.wakes) onWake(wake)
      else this.missed.push(wake)
    })
    return () => {
      this.unlistened += 1
      stop?.()
    }
  }

  async close(): Promise<void> {
    this.closed += 1
  }

  async #send<T>(verb: Verb, request: Omit<Sent, 'verb'>, act: () => T | Promise<T>): Promise<T> {
    this.sent.push({ verb, ...request })
    const fate = this.#fates.get(verb)?.shift() ?? this.#always.get(verb) ?? 'answer'
    if (fate instanceof Letter) return fate.send(act)
    switch (fate) {
      case 'answer':
        return this.replyAfter === undefined ? act() : this.#answerLate(act, this.replyAfter)
      case 'lose request':
        return never()
      case 'lose reply':
        await act()
        return never()
      case 'fail':
        throw this.fails()
      case 'fail late':
        await act()
        throw unavailable()
      case 'refuse':
        throw new StoreError('store-refused', 'The password was not accepted.')
      default:
        return fate satisfies never
    }
  }

  async #answerLate<T>(act: () => T | Promise<T>, replyAfter: () => Promise<void>): Promise<T> {
    const reply = await act()
    await replyAfter()
    return reply
  }
}

const VERBS: readonly Verb[] = ['acquire', 'acquireAll', 'renew', 'release', 'evict', 'inspect']

function never(): Promise<never> {
  return new Promise(() => {})
}

function unavailable(): StoreError {
  return new StoreError('store-unavailable', 'The connection was closed.')
}
