import type { InspectedRoom, Owner } from '../index.ts'

/** A process, or another program that has written an owner, as looks have seen it. */
export interface ProcessView {
  readonly owner: Owner
  /** What it holds and waits for in the last look: `[]` where it is idle. */
  readonly holds: readonly ProcessTicket[]
  readonly waits: readonly ProcessTicket[]
  /** When the first look saw it. */
  readonly seenAt: number
  /** The last look that saw a ticket of it. */
  readonly lastSeenAt: number
  /** The last sign of life: a hold that began, a renewal, or a new place in a queue. */
  readonly heardAt: number
}

export interface ProcessTicket {
  readonly key: string
  readonly id: string
  /** For how long it holds, or waits, as of the look. */
  readonly durationMs: number
}

interface SeenProcess {
  readonly seenAt: number
  readonly heardAt: number
  readonly lastSeenAt: number
  readonly owner: Owner
}

/** The processes that hold or wait, and a bounded number of idle ones: each of those may run or have ended. */
export class Processes {
  readonly #byName: Map<string, SeenProcess> = new Map()

  /** `heardAt`: when a holder was renewed last, as far as that is known. */
  look(
    rooms: Iterable<InspectedRoom>,
    { at, renewedAt }: { readonly at: number; readonly renewedAt: (id: string) => number | undefined },
  ): void {
    // Most tickets of one look share the few owners there are.
    const heard = new Map<Owner, number>()
    const hear = (owner: Owner, heardAt: number): void => {
      heard.set(owner, Math.max(heardAt, heard.get(owner) ?? 0))
    }
    for (const { holders, queue } of rooms) {
      for (const { id, owner, heldMs } of holders) hear(owner, Math.max(at - heldMs, renewedAt(id) ?? 0))
      for (const { owner, waitedMs } of queue) hear(owner, at - waitedMs)
    }
    for (const [owner, heardAt] of heard) {
      const name = processName(owner)
      const known = this.#byName.get(name)
      this.#byName.delete(name)
      this.#byName.set(name, {
        owner,
        seenAt: known?.seenAt ?? at,
        lastSeenAt: at,
        heardAt: Math.max(heardAt, known?.heardAt ?? 0),
      })
    }
    for (const [name, { lastSeenAt }] of this.#byName) {
      const isPresent = lastSeenAt === at
      if (isPresent || (this.#byName.size <= MOST && at - lastSeenAt < KEPT_MS)) break
      this.#byName.delete(name)
    }
  }

  /** When a process was heard of last; `undefined` where no look has seen it, or that is forgotten. */
  heardAt(owner: Owner): number | undefined {
    return this.#byName.get(processName(owner))?.heardAt
  }

  /** All processes, with what they hold and wait for in these rooms. */
  view(rooms: Iterable<InspectedRoom>): readonly ProcessView[] {
    const tickets = new Map<string, { holds: ProcessTicket[]; waits: ProcessTicket[] }>()
    const names = new Map<Owner, string>()
    const of = (owner: Owner): { holds: ProcessTicket[]; waits: ProcessTicket[] } => {
      const name = names.get(owner) ?? processName(owner)
      names.set(owner, name)
      const own = tickets.get(name) ?? { holds: [], waits: [] }
      tickets.set(name, own)
      return own
    }
    for (const { key, holders, queue } of rooms) {
      for (const { id, owner, heldMs } of holders) of(owner).holds.push({ key, id, durationMs: heldMs })
      for (const { id, owner, waitedMs } of queue) of(owner).waits.push({ key, id, durationMs: waitedMs })
    }
    return Array.from(this.#byName, ([name, seen]) => ({
      ...seen,
      ...(tickets.get(name) ?? { holds: [], waits: [] }),
    }))
  }
}

/** Equal for all tickets of one process: without what a leader publishes, which is not about its process. */
export function processName({ host, pid, label, text }: Owner): string {
  return text ?? JSON.stringify([host, pid, label])
}

/** Of idle processes. */
const MOST = 2000
const KEPT_MS = 3_600_000
