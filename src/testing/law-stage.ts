import type { RoomView, Store, Ticket } from '../contract/store.ts'
import type { StoreTime, TicketWake } from '../law/room.ts'
import { show } from './conformance-scene.ts'
import { ClockMatch, FenceMatch, firstDifference } from './law-difference.ts'
import { type CallStep, type History, nameOf, ROOMS, type Step } from './law-history.ts'
import { type Call, type CallAnswer, LawModel } from './law-model.ts'

export interface StageOptions {
  readonly store: Store
  readonly setTime?: (ms: number) => void | Promise<void>
  readonly grants?: boolean
}

/** The first difference between the store and the law in one history. */
export interface Difference {
  /** How many steps were played until the difference. */
  readonly steps: number
  readonly text: string
}

/** Plays histories to a store and to the law side by side. */
export class Stage {
  /** How often the law gave which answer. */
  readonly answers: Map<string, number> = new Map()
  readonly #store: Store
  readonly #setTime: StageOptions['setTime']
  readonly #grants: boolean
  readonly #clocks = new ClockMatch()
  /** The messages of the store, by ticket. */
  readonly #heard = new Map<string, TicketWake[]>()
  /** How long a wake may take. It becomes short after the first missing wake, to find the shortest history faster. */
  #wakeWithinMs: number
  #ms: number = Date.now()
  #unlisten: (() => void) | undefined

  constructor(options: StageOptions) {
    this.#store = options.store
    this.#setTime = options.setTime
    // A store on a real clock may be a server on a busy machine.
    this.#wakeWithinMs = options.setTime === undefined ? 20_000 : 2_000
    this.#grants = options.grants === true
  }

  async open(): Promise<void> {
    this.#unlisten = await this.#store.listen?.((wake) => {
      if (wake.tag !== 'all') addTo(this.#heard, wake)
    })
  }

  close(): void {
    this.#unlisten?.()
  }

  /** Plays a history on keys of its own and clears them away again. Returns the first difference, if there is one. */
  async play({ cast, steps }: History): Promise<Difference | undefined> {
    const prefix = `comparison:${crypto.randomUUID()}:`
    const tickets = cast.map(({ room, ...role }) => ({
      ...role,
      key: prefix + room,
      id: crypto.randomUUID(),
    }))
    const law = new LawModel(() => this.#grants && this.#unlisten !== undefined)
    const play: Play = { prefix, tickets, law, fences: new Map(), wakes: new Map() }
    await this.#pass(0)
    let difference: Difference | undefined
    for (const [index, step] of steps.entries()) {
      const text = await this.#differs(play, step)
      if (text === undefined) continue
      difference = { steps: index + 1, text }
      break
    }
    const left = await this.#leftBehind(play)
    this.#heard.clear()
    return difference ?? (left === undefined ? undefined : { steps: steps.length, text: left })
  }

  async #differs(play: Play, step: Step): Promise<string | undefined> {
    if (step.verb === 'pass') await this.#pass(step.ms)
    else {
      const calls = step.verb === 'setBack' ? clearing(play) : callsOf(step, play)
      const answers = await Promise.all(calls.map((call) => ask(this.#store, call)))
      const text = first(calls, (call, index) => this.#answersDiffer(play, call, answers[index]))
      if (text !== undefined) return text
      if (step.verb === 'setBack') await this.#pass(-step.ms)
    }
    return (await this.#roomsDiffer(play)) ?? (await this.#wakesDiffer(play))
  }

  #answersDiffer(play: Play, call: Call, answer: CallAnswer | undefined): string | undefined {
    const { answer: expected, wakes } = play.law.ask(call, this.#time())
    for (const wake of wakes) addTo(play.wakes, wake)
    this.#count(call, expected, wakes)
    switch (call.verb) {
      case 'acquire':
        return this.#compare(play, call.ticket.key, answer, expected)
      case 'release':
        return this.#compare(play, call.request.key, answer, expected)
      case 'evict':
        // The order of evicted ids is no promise.
        return this.#compare(play, call.request.key, sorted(answer), sorted(expected))
      case 'renew':
        return first(call.tickets, (ticket, index) => {
          const [theirs, ours] = [answer, expected] as readonly (readonly unknown[])[]
          return this.#compare(play, ticket.key, theirs?.[index], ours?.[index])
        })
      default:
        return call satisfies never
    }
  }

  async #roomsDiffer(play: Play): Promise<string | undefined> {
    const rooms = await this.#rooms(play.prefix)
    const time = this.#time()
    return first([...Array(ROOMS).keys()], (room) => {
      const key = play.prefix + room
      const theirs = inOrder(rooms.find((candidate) => candidate.key === key))
      return this.#compare(play, key, theirs, inOrder(play.law.view(key, time)))
    })
  }

  /** A message may come a moment late, so wait for missing ones. A message too many is always a difference. */
  async #wakesDiffer(play: Play): Promise<string | undefined> {
    if (this.#unlisten === undefined) return undefined
    const { tickets, wakes } = play
    const heard = (id: string): readonly TicketWake[] => this.#heard.get(id) ?? []
    const expected = (id: string): readonly TicketWake[] => wakes.get(id) ?? []
    const giveUpAt = performance.now() + this.#wakeWithinMs
    while (tickets.some(({ id }) => heard(id).length < expected(id).length)) {
      if (performance.now() > giveUpAt) {
        this.#wakeWithinMs = 50
        break
      }
      await new Promise((resolve) => setTimeout(resolve, 1))
    }
    return first(tickets, ({ key, id }, role) => {
      const [theirs, ours] = [heard(id), expected(id)]
      if (theirs.length !== ours.length)
        return `${nameOf(role)} was woken ${theirs.length} times instead of ${ours.length}`
      return first(ours, (wake, index) => this.#compare(play, key, theirs[index], wake))
    })
  }

  /** Once every ticket was released and every term is over, no room may be left. */
  async #leftBehind({ prefix, tickets }: Play): Promise<string | undefined> {
    for (const { key, id } of tickets) await this.#store.release({ key, id, cancel: false })
    await this.#pass(LONGEST_TERM_MS)
    if (this.#setTime === undefined) {
      // On a real clock, evict instead of waiting for the end of a minimum hold.
      for (const { key } of tickets) await this.#store.evict({ key, id: undefined, reason: 'the end' })
    }
    const rooms = await this.#rooms(prefix)
    return rooms.length === 0 ? undefined : `left behind after every ticket was released: ${show(rooms)}`
  }

  /** Reads all pages: in a store with many other keys the first page may be empty. */
  async #rooms(prefix: string): Promise<readonly RoomView[]> {
    const rooms: RoomView[] = []
    let cursor: string | undefined
    do {
      const page = await this.#store.inspect({ prefix, cursor, count: ROOMS + 1 })
      rooms.push(...page.rooms)
      cursor = page.next
    } while (cursor !== undefined)
    return rooms
  }

  #compare(play: Play, key: string, theirs: unknown, ours: unknown): string | undefined {
    const fences = play.fences.get(key) ?? new FenceMatch()
    play.fences.set(key, fences)
    const exact = this.#setTime !== undefined
    // Stores whose messages are hints need not tell the time.
    const [theirPart, ourPart] = this.#grants ? [theirs, ours] : [withoutTime(theirs), withoutTime(ours)]
    const text = firstDifference(theirPart, ourPart, {
      fences,
      clocks: this.#clocks,
      exact,
      floor: exact ? BigInt(this.#ms) * 1000n : 0n,
    })
    return text && `${text}\n  the store: ${show(theirs)}\n  the law:   ${show(ours)}`
  }

  async #pass(ms: number): Promise<void> {
    this.#ms += ms
    await this.#setTime?.(this.#ms)
  }

  #time(): StoreTime {
    const ms = this.#setTime === undefined ? Date.now() : this.#ms
    return { ms, us: ms * 1000 }
  }

  #count({ verb }: Call, answer: CallAnswer, wakes: readonly TicketWake[]): void {
    for (const { tag } of wakes) addOne(this.answers, `${verb} wakes ${tag}`)
    const parts: readonly unknown[] = Array.isArray(answer) ? answer : [answer]
    for (const part of parts) {
      const { tag, was, evicted } = Object(part) as { tag?: string; was?: string; evicted?: boolean }
      addOne(this.answers, `${verb} ${evicted ? 'evicted' : (tag ?? was ?? 'removed')}`)
    }
  }
}

interface Play {
  readonly prefix: string
  readonly tickets: readonly Ticket[]
  readonly law: LawModel
  readonly fences: Map<string, FenceMatch>
  /** The messages that each ticket must have had. */
  readonly wakes: Map<string, TicketWake[]>
}

/** Longer than any term of a history in which time passes, except tombstones. `inspect` does not show those. */
const LONGEST_TERM_MS = 200_000

/** Calls that remove no ticket, and make the store clear each room of expired tickets. */
function clearing({ prefix }: Play): readonly Call[] {
  const id = crypto.randomUUID()
  return [...Array(ROOMS).keys()].map((room) => ({
    verb: 'evict',
    request: { key: prefix + room, id, reason: 'nobody' },
  }))
}

function callsOf(step: Exclude<Step, { verb: 'pass' | 'setBack' }>, play: Play): readonly Call[] {
  return (step.verb === 'together' ? step.calls : [step]).map((call) => callOf(call, play))
}

function callOf(step: CallStep, { prefix, tickets }: Play): Call {
  const ticketOf = (role: number): Ticket => {
    const ticket = tickets[role]
    if (ticket === undefined)
      throw new RangeError(`Expected \`role\` to be one of ${tickets.length}, got ${role}`)
    return ticket
  }
  switch (step.verb) {
    case 'acquire':
      return { verb: 'acquire', ticket: ticketOf(step.role) }
    case 'renew': {
      const { ttlMs } = step
      const asked = step.roles.map(ticketOf)
      return {
        verb: 'renew',
        tickets: ttlMs === undefined ? asked : asked.map((ticket) => ({ ...ticket, ttlMs })),
      }
    }
    case 'release': {
      const { key, id } = ticketOf(step.role)
      return { verb: 'release', request: { key, id, cancel: step.cancel } }
    }
    case 'evict': {
      const id = step.role === undefined ? undefined : ticketOf(step.role).id
      return { verb: 'evict', request: { key: prefix + step.room, id, reason: `because of ${step.room}` } }
    }
    default:
      return step satisfies never
  }
}

async function ask(store: Store, call: Call): Promise<CallAnswer> {
  switch (call.verb) {
    case 'acquire':
      return store.acquire(call.ticket)
    case 'renew':
      return store.renew(call.tickets)
    case 'release':
      return store.release(call.request)
    case 'evict':
      return store.evict(call.request)
    default:
      return call satisfies never
  }
}

/** Holders in the order of their fences, because no other order is promised. */
function inOrder(room: RoomView | undefined): RoomView | undefined {
  return (
    room && { ...room, holders: [...room.holders].sort((one, other) => (one.fence < other.fence ? -1 : 1)) }
  )
}

function sorted(answer: CallAnswer | undefined): readonly unknown[] {
  return Array.isArray(answer) ? [...answer].sort() : [answer]
}

function first<T>(
  parts: readonly T[],
  find: (part: T, index: number) => string | undefined,
): string | undefined {
  for (const [index, part] of parts.entries()) {
    const found = find(part, index)
    if (found !== undefined) return found
  }
  return undefined
}

function withoutTime(answer: unknown): unknown {
  if (typeof answer !== 'object' || answer === null || !('storeMs' in answer)) return answer
  const { storeMs: _, ...rest } = answer
  return rest
}

function addTo(wakes: Map<string, TicketWake[]>, wake: TicketWake): void {
  const present = wakes.get(wake.id)
  if (present === undefined) wakes.set(wake.id, [wake])
  else present.push(wake)
}

function addOne(counts: Map<string, number>, name: string): void {
  counts.set(name, (counts.get(name) ?? 0) + 1)
}
