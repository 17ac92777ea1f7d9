import type { InspectedHolder, InspectedRoom } from '../index.ts'
import type { HistoryFile } from './history-file.ts'
import type { HistoryLimits } from './history-limits.ts'
import { type HoldEnding, type HoldRecord, type KeyHistory, type KeyHold, KeyRecord } from './hold-record.ts'
import { Processes } from './processes.ts'
import { type RenewalFacts, renewalFacts } from './renewal-facts.ts'
import { electionsIn, isKeptForATime, isPartOf, isVacant } from './ticket-facts.ts'
import { LONGEST_PAUSE_MS, type WatchedTime, WatchedTimes } from './watched-times.ts'

/** The sums over all keys of one look. */
export interface Totals {
  readonly at: number
  readonly keys: number
  readonly holding: number
  readonly waiting: number
  /** How many holds have begun, and how many have expired, since the look before. */
  readonly begun: number
  readonly expired: number
}

/**
 * Records what differs between two looks in a row. Only keys that change are recorded, so that keys that do not change push
 * nothing out, however many they are. Never larger than its limits.
 */
export class RoomHistory {
  readonly #limits: HistoryLimits
  readonly #file: HistoryFile | undefined
  /** In the order of the keys' last change. */
  readonly #byKey: Map<string, KeyRecord> = new Map()
  readonly #totals: Totals[] = []
  /** The holds that have expired or were evicted, in the order in which that was seen. */
  readonly #losses: KeyHold[] = []
  readonly #watched: WatchedTimes
  readonly processes: Processes = new Processes()
  /** What the file does not know yet. */
  readonly #unsaved: Map<HoldRecord, string> = new Map()
  #size = 0
  #rooms: ReadonlyMap<string, InspectedRoom> | undefined
  /** Whether there were more rooms at the last look. */
  #isCut = false
  /** The marks and vacancies of the elections in the last look. A mark is counted with the election's own key. */
  #marks: readonly string[] = []
  /** The marks and vacancies of this look, and of the one before: those may be gone. */
  #uncounted: ReadonlySet<string> = new Set()
  /** By id, for each present holder. */
  #renewals: ReadonlyMap<string, RenewalFacts> = new Map()
  /** By id: holds that were evicted from here, until a look misses them. The record of their key may be too short for them. */
  readonly #evicted = new Map<string, KeyHold>()
  /** Keys without a record have not changed since then. */
  #calmSinceAt = 0
  /** When a key's record was dropped last. A key without a record may have been that one. */
  #forgottenAt: number | undefined
  #lookedAt = 0
  /** When a look last had all rooms. Of an earlier run only the last look is known. */
  #completeAt: number | undefined
  /** When the last look began, by the monotonic clock. */
  #begunMs = 0
  /** The longest time since a room of the last look may have been read. */
  #elapsedMs = 0

  constructor(limits: HistoryLimits, file?: HistoryFile, prefix = '') {
    this.#limits = limits
    this.#file = file
    const { holds, watched, completeFromAt } = file?.load(prefix) ?? { holds: [], watched: [] }
    this.#forgottenAt = completeFromAt
    this.#watched = new WatchedTimes(watched)
    this.#completeAt = watched.at(-1)?.untilAt
    for (const { key, hold } of holds) this.#restore(key, hold)
    this.#forget()
  }

  get totals(): readonly Totals[] {
    return this.#totals
  }

  get losses(): readonly KeyHold[] {
    return this.#losses
  }

  /** Not before what is kept of the history, however long the first stretch is. */
  get watched(): readonly WatchedTime[] {
    return this.#watched.since(this.#lookedAt - this.#limits.keepMs)
  }

  /** The keys that were seen to change and are not forgotten. */
  get changed(): Iterable<string> {
    return this.#byKey.keys()
  }

  /** `undefined` where the key is free and no earlier holder is remembered. */
  of(key: string): KeyHistory | undefined {
    const room = this.#rooms?.get(key)
    return this.#byKey.get(key) ?? (room && this.#begun(room))
  }

  /** What is known about the renewals of a present holder. */
  renewalsOf(id: string): RenewalFacts | undefined {
    return this.#renewals.get(id)
  }

  /**
   * Records the rooms of a look. `begunMs`: its beginning by the monotonic clock. `at`: its end, which is now. `isCut`: there are more
   * rooms, so nothing is known of a key that is not among them. Returns whether a holder or a waiter has come or gone since the look
   * before.
   */
  look(rooms: ReadonlyMap<string, InspectedRoom>, { at, begunMs, isCut = false }: LookTerms): boolean {
    const before = this.#rooms
    const wasCut = this.#isCut
    this.#isCut = isCut
    let isChanged = before === undefined
    // The monotonic clock may stand still while the machine sleeps, and the wall clock may be set: take the larger.
    this.#elapsedMs = Math.max(at - this.#lookedAt, performance.now() - this.#begunMs)
    this.#begunMs = begunMs
    const renewals = new Map<string, RenewalFacts>()
    if (at < this.#lookedAt) this.#setBack(at)
    const elections = electionsIn([...rooms.values()])
    const marks = Array.from(rooms.values())
      .filter((room) => isPartOf(elections, room.key) || isVacant(elections, room))
      .map(({ key }) => key)
    this.#uncounted = new Set([...this.#marks, ...marks])
    this.#marks = marks
    let [keys, holding, waiting, begun, expired] = [0, 0, 0, 0, 0]
    let calmSinceAt = this.#calmSinceAt
    for (const [key, room] of rooms) {
      for (const holder of isKeptForATime(key) ? [] : room.holders) {
        renewals.set(holder.id, renewalFacts(holder, this.#renewals.get(holder.id)))
      }
      // At the first look, no hold has begun just now. Nor has that of a key which the look before may have left out.
      const isComparable = before !== undefined && (before.has(key) || !wasCut)
      const changes = isComparable ? this.#compare(key, before.get(key), room, at) : NO_CHANGES
      if (wasCut && isCut && !isComparable) {
        calmSinceAt = at
        this.#resume(key, room, at)
      }
      isChanged ||= changes !== NO_CHANGES
      const isCounted = !this.#uncounted.has(key)
      // An election that nobody leads is a key, but its observers hold nothing.
      if (isCounted || elections.has(key)) keys += 1
      if (!isCounted) continue
      holding += room.holders.length
      waiting += room.queue.length
      begun += changes.begun
      expired += changes.expired
    }
    for (const [key, room] of before ?? []) {
      if (isCut || rooms.has(key)) continue
      isChanged = true
      const changes = this.#compare(key, room, undefined, at)
      if (!this.#uncounted.has(key)) expired += changes.expired
    }
    this.#calmSinceAt = calmSinceAt
    this.#totals.push({ at, keys, holding, waiting, begun, expired })
    if (this.#totals.length > this.#limits.looks) this.#totals.shift()
    // The first complete look, also after others that were cut. The records may be those of an earlier run.
    if (before === undefined || (wasCut && !isCut)) {
      this.#calmSinceAt = at
      for (const key of [...this.#byKey.keys()])
        if (!isCut || rooms.has(key)) this.#resume(key, rooms.get(key), at)
    }
    this.#rooms = rooms
    this.#renewals = renewals
    for (const [id, { key }] of this.#evicted) {
      if (rooms.get(key)?.holders.some((holder) => holder.id === id) !== true) this.#evicted.delete(id)
    }
    this.processes.look(rooms.values(), {
      at,
      renewedAt: (id) => {
        const facts = renewals.get(id)
        return facts?.isKnown === true ? at - (facts.ttlMs - facts.remainingMs) : undefined
      },
    })
    this.#lookedAt = at
    if (!isCut) this.#completeAt = at
    else for (const key of rooms.keys()) this.#byKey.get(key)?.seen(at)
    this.#forget()
    const keptSinceAt = this.#dropOld(at)
    const watched = this.#watched.look(at)
    if (this.#file === undefined) return isChanged
    const changed = Array.from(this.#unsaved, ([hold, key]) => ({ key, hold }))
    if (this.#file.save(changed, watched, keptSinceAt)) this.#unsaved.clear()
    // The file may not be writable for hours.
    for (const { hold } of changed) {
      if (this.#unsaved.size <= this.#limits.unsaved) break
      this.#unsaved.delete(hold)
    }
    return isChanged
  }

  /** The store does not say why a ticket is gone. An eviction from here is noted, before or after a look misses the ticket. */
  noteEviction(key: string, ids: readonly string[], { reason, at }: { reason: string; at: number }): void {
    if (this.of(key) === undefined) return
    const room = this.#rooms?.get(key)
    const record = this.#record(key, room)
    const sizeBefore = record.size
    for (const id of ids) {
      const holder = room?.holders.find((each) => each.id === id)
      const hold = holder === undefined ? record.find(id) : record.findOrAdd(holder, this.#lookedAt)
      if (hold === undefined) continue
      this.#end(key, hold, { untilAt: hold.untilAt ?? at, end: 'evicted', reason })
      this.#evicted.set(id, { key, hold })
    }
    this.#size += record.size - sizeBefore
    this.#forget()
  }

  #compare(
    key: string,
    before: InspectedRoom | undefined,
    room: InspectedRoom | undefined,
    at: number,
  ): Changes {
    const holders = room?.holders ?? []
    const known = before?.holders ?? []
    const waiting = room?.queue.length ?? 0
    const isSame =
      waiting === (before?.queue.length ?? 0) &&
      holders.length === known.length &&
      holders.every(({ id }, index) => id === known[index]?.id)
    // In most rooms nothing has changed but the time left.
    if (isSame) return NO_CHANGES
    const begun = without(holders, known)
    const record = this.#record(key, before)
    const sizeBefore = record.size
    record.dropBefore(at - this.#limits.keepMs)
    const earliestAt = begun.reduce((earliest, { heldMs }) => Math.min(earliest, at - heldMs), at)
    const untilAt = Math.max(this.#lookedAt, earliestAt)
    const ends = without(known, holders).map((holder) => {
      const ending = { ...this.#endOf(holder, at), untilAt }
      const hold = this.#evicted.get(holder.id)?.hold ?? record.findOrAdd(holder, this.#lookedAt)
      if (hold.end === undefined) this.#end(key, hold, ending)
      return hold.end ?? ending.end
    })
    for (const holder of begun) this.#note(key, record.begin(holder, at))
    record.sample({ at, holding: holders.length, waiting })
    this.#size += record.size - sizeBefore
    return { begun: begun.length, expired: ends.filter((end) => end === 'expired').length }
  }

  #endOf({ id, state, remainingMs }: InspectedHolder, at: number): Omit<HoldEnding, 'untilAt'> {
    const { ttlMs = remainingMs, isKnown = false } = this.#renewals.get(id) ?? {}
    const facts = isKnown ? { ttlMs, renewedAt: this.#lookedAt - (ttlMs - remainingMs) } : {}
    // Stores count whole milliseconds, so up to one less was left.
    if (state === 'leaving') return { ...facts, end: 'released' }
    // Nobody looked in between: it may have been released just after the look before.
    if (at - this.#lookedAt > LONGEST_PAUSE_MS) return { ...facts, end: 'unclear' }
    if (remainingMs - 1 > this.#elapsedMs) return { ...facts, end: 'released' }
    // A living holder renews long before half of its ttl is over.
    return { ...facts, end: remainingMs < ttlMs / 2 ? 'expired' : 'unclear' }
  }

  #end(key: string, hold: HoldRecord, ending: HoldEnding): void {
    const wasLost = isLost(hold)
    Object.assign(hold, ending)
    this.#note(key, hold)
    if (isLost(hold) && !wasLost && !this.#uncounted.has(key)) this.#lost({ key, hold })
  }

  #lost(hold: KeyHold): void {
    this.#losses.push(hold)
    while (this.#losses.length > this.#limits.losses) this.#losses.shift()
  }

  #note(key: string, hold: HoldRecord | undefined): void {
    // From a file, a lost hold comes back as a loss.
    if (this.#file === undefined || hold === undefined || this.#uncounted.has(key)) return
    this.#unsaved.set(hold, key)
  }

  /** The record of a key that changes now, moved to the end of the order. `before`: the room before the change. */
  #record(key: string, before: InspectedRoom | undefined): KeyRecord {
    const known = this.#byKey.get(key)
    const record = known ?? (before && this.#begun(before)) ?? this.#empty()
    this.#byKey.delete(key)
    this.#byKey.set(key, record)
    if (known !== undefined) return record
    this.#size += record.size
    for (const hold of record.holds) this.#note(key, hold)
    return record
  }

  /** A new record of a room that has not changed for as long as looks can tell. */
  #begun({ holders, queue }: InspectedRoom): KeyRecord {
    const record = this.#empty()
    record.seen(this.#lookedAt)
    for (const holder of holders) record.begin(holder, this.#lookedAt)
    record.sample({ at: this.#calmSinceAt, holding: holders.length, waiting: queue.length })
    return record
  }

  /** The clock was set back: what was known until later is known until now. */
  #setBack(at: number): void {
    this.#calmSinceAt = Math.min(this.#calmSinceAt, at)
    if (this.#forgottenAt !== undefined) this.#forgottenAt = Math.min(this.#forgottenAt, at)
    for (const record of this.#byKey.values()) record.setBack(at)
  }

  #empty(): KeyRecord {
    return new KeyRecord(this.#limits.entries, this.#forgottenAt)
  }

  #restore(key: string, hold: HoldRecord): void {
    const known = this.#byKey.get(key)
    const sizeBefore = known?.size ?? 0
    const record = known ?? this.#empty()
    record.restore(hold)
    this.#byKey.delete(key)
    this.#byKey.set(key, record)
    this.#size += record.size - sizeBefore
    if (isLost(hold)) this.#lost({ key, hold })
  }

  /** Continues the record of a key, if there is one, after a time in which nobody looked at the key. */
  #resume(
    key: string,
    { holders, queue }: Pick<InspectedRoom, 'holders' | 'queue'> = VACANT,
    at: number,
  ): void {
    const record = this.#byKey.get(key)
    if (record === undefined) return
    const present = new Set(holders.map(({ id }) => id))
    const gone = record.holds.filter(({ id, end }) => end === undefined && !present.has(id))
    // Nobody saw their end, so they are known to have lasted only as long as somebody looked at the key.
    const untilAt = record.seenUntil(this.#completeAt) ?? at
    for (const hold of gone) this.#end(key, hold, { untilAt: Math.max(hold.fromAt, untilAt), end: 'unclear' })
    const sizeBefore = record.size
    const begun = holders.map((holder) => record.begin(holder, at)).filter((hold) => hold !== undefined)
    for (const hold of begun) this.#note(key, hold)
    const sample = { at, holding: holders.length, waiting: queue.length }
    const isChanged = gone.length > 0 || begun.length > 0 || !record.hasLast(sample)
    // A file has holds, and no counts.
    if (record.samples.length === 0) record.samplesFromAt = at
    // Looks have left the key out. Where there were no looks, that is shown anyway.
    else if (isChanged && this.#rooms?.has(key) === false) record.limitTo(at)
    if (isChanged) record.sample(sample)
    this.#size += record.size - sizeBefore
  }

  #forget(): void {
    for (const [key, { size }] of this.#byKey) {
      if (this.#byKey.size <= this.#limits.keys && this.#size <= this.#limits.total) return
      this.#byKey.delete(key)
      this.#size -= size
      // From now on, a key without a record may have changed before this look.
      this.#calmSinceAt = this.#lookedAt
      this.#forgottenAt = Math.max(this.#lookedAt, this.#completeAt ?? 0)
    }
  }

  /** Returns since when the history is kept. */
  #dropOld(at: number): number {
    const sinceAt = at - this.#limits.keepMs
    while ((this.#losses[0]?.hold.untilAt ?? at) < sinceAt) this.#losses.shift()
    this.#watched.dropBefore(sinceAt)
    for (const [key, record] of this.#byKey) {
      const sample = record.samples.at(-1)
      // An eviction that no look has seen has no sample yet.
      const ends = record.holds.map(({ untilAt = sample?.at ?? at }) => untilAt)
      const knownAt = Math.max(sample?.at ?? 0, ...ends)
      if (knownAt >= sinceAt) {
        // A key of an earlier run that no look has reached says nothing about the keys after it.
        if (sample === undefined) continue
        // The keys that come now have changed later.
        break
      }
      this.#byKey.delete(key)
      this.#size -= record.size
      this.#calmSinceAt = Math.max(this.#calmSinceAt, sinceAt)
    }
    return sinceAt
  }
}

function isLost({ end }: HoldRecord): boolean {
  return end === 'expired' || end === 'evicted'
}

interface LookTerms {
  readonly at: number
  readonly begunMs: number
  readonly isCut?: boolean
}

const VACANT = { holders: [], queue: [] } as const

interface Changes {
  readonly begun: number
  readonly expired: number
}

const NO_CHANGES: Changes = { begun: 0, expired: 0 }

function without(
  some: readonly InspectedHolder[],
  others: readonly InspectedHolder[],
): readonly InspectedHolder[] {
  const ids = new Set(others.map(({ id }) => id))
  return some.filter(({ id }) => !ids.has(id))
}
