import type {
  AcquireAnswer,
  EvictRequest,
  ReleaseAnswer,
  ReleaseRequest,
  RenewAnswer,
  RoomView,
  Ticket,
} from '../contract/store.ts'
import {
  acquire,
  evict,
  openRoom,
  type Room,
  release,
  renew,
  type StoreTime,
  type VerbResult,
} from '../law/room.ts'
import { view } from '../law/view.ts'

/** One call of a store that can change something, as a value. */
export type Call =
  | { readonly verb: 'acquire'; readonly ticket: Ticket }
  | { readonly verb: 'renew'; readonly tickets: readonly Ticket[] }
  | { readonly verb: 'release'; readonly request: ReleaseRequest }
  | { readonly verb: 'evict'; readonly request: EvictRequest }

export type CallAnswer = AcquireAnswer | readonly RenewAnswer[] | ReleaseAnswer | readonly string[]

/** Rooms that the law itself keeps, without a store. */
export class LawModel {
  readonly #rooms = new Map<string, Room>()
  readonly #reaches: Room['reaches']

  /** `reaches`: whether a message to the process of this waiter is taken. */
  constructor(reaches: Room['reaches']) {
    this.#reaches = reaches
  }

  /** The answer of the law, and the messages that have to be sent. */
  ask(call: Call, time: StoreTime): VerbResult<CallAnswer> {
    switch (call.verb) {
      case 'acquire':
        return acquire(this.#room(call.ticket.key), call.ticket, time)
      case 'renew': {
        const outcomes = call.tickets.map((ticket) => renew(this.#room(ticket.key), ticket, time))
        return {
          answer: outcomes.map(({ answer }) => answer),
          wakes: outcomes.flatMap(({ wakes }) => wakes),
        }
      }
      case 'release':
        return release(this.#room(call.request.key), call.request, time)
      case 'evict':
        return evict(this.#room(call.request.key), call.request, time)
      default:
        return call satisfies never
    }
  }

  /** The view that `inspect` has to show; `undefined` if it must not show the room. */
  view(key: string, time: StoreTime): RoomView | undefined {
    const seen = view(this.#room(key), key, time)
    return seen.holders.length > 0 || seen.queue.length > 0 || seen.closedMs > 0 ? seen : undefined
  }

  #room(key: string): Room {
    const room = this.#rooms.get(key) ?? openRoom(0, this.#reaches)
    this.#rooms.set(key, room)
    return room
  }
}
