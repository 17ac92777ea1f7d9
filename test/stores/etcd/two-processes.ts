import type {
  AcquireAnswer,
  RenewAnswer,
  RoomPage,
  Store,
  Ticket,
  Wake,
} from '../../../src/contract/store.ts'
import { type Call, type CallAnswer, LawModel } from '../../../src/testing/law-model.ts'

/**
 * Two stores as one, as if each were the store of a process: a ticket belongs to one of them. Only its own process
 * knows when a ticket was confirmed and how long its minimum hold is. So hints about times come from the law.
 */
export function twoProcesses(one: Store, other: Store): Store {
  const law = new LawModel(() => false)
  const ownerOf = (id: string): Store => (Number.parseInt(id.slice(0, 1), 16) % 2 === 0 ? one : other)
  const ask = (call: Call): CallAnswer => law.ask(call, { ms: Date.now(), us: Date.now() * 1000 }).answer
  let wake: (wake: Wake) => void = () => {}
  /**
   * Tickets that were evicted after their release. No ticket waits then, so not every process watches for the eviction.
   */
  const left = new Set<string>()
  return {
    name: one.name,
    async acquire(ticket) {
      const expected = ask({ verb: 'acquire', ticket }) as AcquireAnswer
      const answer = await ownerOf(ticket.id).acquire(ticket)
      return left.has(ticket.id) ? expected : hinted(answer, expected)
    },
    async renew(tickets) {
      const answers: RenewAnswer[] = []
      for (const ticket of tickets) answers.push(await renewOne(ticket))
      return answers
    },
    async release(request) {
      ask({ verb: 'release', request })
      return ownerOf(request.id).release(request)
    },
    async evict(request) {
      ask({ verb: 'evict', request })
      if (request.id !== undefined) return ownerOf(request.id).evict(request)
      const { rooms } = await one.inspect({ prefix: request.key, cursor: undefined, count: 1 })
      for (const { id, state } of rooms.find(({ key }) => key === request.key)?.holders ?? []) {
        if (state !== 'leaving' || left.has(id)) continue
        left.add(id)
        wake({ tag: 'ticket', id })
      }
      return one.evict(request)
    },
    async listen(onWake) {
      wake = onWake
      const pass = (told: Wake) => {
        if (told.tag !== 'ticket' || !left.has(told.id)) onWake(told)
      }
      const stops = [await one.listen?.(pass), await other.listen?.(pass)]
      return () => {
        for (const stop of stops) stop?.()
      }
    },
    async inspect(request) {
      const [page, seenByOther] = [await one.inspect(request), await other.inspect(request)]
      return merged(page, seenByOther, (id) => ownerOf(id) === one)
    },
    async close() {
      await one.close()
      await other.close()
    },
  }

  async function renewOne(ticket: Ticket): Promise<RenewAnswer> {
    const [expected] = ask({ verb: 'renew', tickets: [ticket] }) as readonly RenewAnswer[]
    const [answer] = await ownerOf(ticket.id).renew([ticket])
    return left.has(ticket.id)
      ? (expected as RenewAnswer)
      : hinted(answer as RenewAnswer, expected as RenewAnswer)
  }
}

/** The store's answer with the law's times, if both have the same tag. */
function hinted<A extends AcquireAnswer | RenewAnswer>(answer: A, expected: A): A {
  if (answer.tag === 'queued' && expected.tag === 'queued')
    return { ...answer, askAgainMs: expected.askAgainMs }
  if (answer.tag === 'busy' && expected.tag === 'busy') return { ...answer, retryMs: expected.retryMs }
  return answer
}

/** The page, with each holder as its own process shows it. */
function merged(page: RoomPage, seenByOther: RoomPage, isOfOne: (id: string) => boolean): RoomPage {
  const theirs = seenByOther.rooms.flatMap(({ key, holders }) => holders.map((holder) => ({ key, holder })))
  const rooms = page.rooms.map((room) => ({
    ...room,
    holders: room.holders.map((holder) => {
      if (isOfOne(holder.id)) return holder
      return theirs.find(({ key, holder: { id } }) => key === room.key && id === holder.id)?.holder ?? holder
    }),
  }))
  return { ...page, rooms }
}
