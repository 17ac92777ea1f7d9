import type { KeyHistory } from './hold-record.ts'
import type { RoomWatch } from './room-watch.ts'
import { electionsIn, isPartOf } from './ticket-facts.ts'

/** The queue of a key over the last minute, or over its known history where that is shorter. */
export interface Contention {
  readonly key: string
  /** The average length of the queue. */
  readonly averageWaiting: number
  readonly mostWaiting: number
  /** Holds that have begun, as far as they were seen. */
  readonly handOvers: number
}

/** The keys with the longest queues on average come first. Elections are left out: their candidates always wait. */
export function contentionIn(
  { snapshot, changed, historyOf }: ContentionSources,
  most: number,
): readonly Contention[] {
  const { rooms, at } = snapshot
  const elections = electionsIn(rooms)
  const keys = new Set(changed)
  for (const { key, queue } of rooms) if (queue.length > 0) keys.add(key)
  const found: Contention[] = []
  for (const key of keys) {
    const isElection = elections.has(key) || isPartOf(elections, key)
    const history = isElection ? undefined : historyOf(key)
    const contention = history && contentionOf(history, at)
    if (contention !== undefined && contention.mostWaiting > 0) found.push({ key, ...contention })
  }
  return found.sort((one, other) => other.averageWaiting - one.averageWaiting).slice(0, most)
}

type ContentionSources = Pick<RoomWatch, 'snapshot' | 'changed'> & {
  readonly historyOf: (key: string) => KeyHistory | undefined
}

function contentionOf({ samples, holds }: KeyHistory, at: number): Omit<Contention, 'key'> | undefined {
  const [first] = samples
  if (first === undefined) return undefined
  const fromAt = Math.max(first.at, at - MINUTE_MS)
  let [sum, mostWaiting] = [0, 0]
  for (const [index, sample] of samples.entries()) {
    const untilAt = samples[index + 1]?.at
    if (untilAt !== undefined && untilAt <= fromAt) continue
    // Samples after now are from before the clock was set back.
    sum += sample.waiting * Math.max(0, Math.min(untilAt ?? at, at) - Math.max(sample.at, fromAt))
    mostWaiting = Math.max(mostWaiting, sample.waiting)
  }
  return {
    averageWaiting: at > fromAt ? sum / (at - fromAt) : mostWaiting,
    mostWaiting,
    handOvers: holds.filter((hold) => hold.fromAt > fromAt).length,
  }
}

const MINUTE_MS = 60_000
