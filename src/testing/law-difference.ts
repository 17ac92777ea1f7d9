import { show } from './conformance-scene.ts'

export interface DifferenceOptions {
  readonly fences: FenceMatch
  readonly clocks: ClockMatch
  /** Whether both sides have the same clock. Otherwise times only have to be near. */
  readonly exact: boolean
  /** The store's time in µs. No new fence may be smaller. */
  readonly floor: bigint
}

/** Describes the first difference of two answers; `undefined` if there is none. */
export function firstDifference(
  theirs: unknown,
  ours: unknown,
  options: DifferenceOptions,
  path = 'answer',
): string | undefined {
  if (typeof theirs === 'bigint' && typeof ours === 'bigint') {
    const matches = options.fences.match(theirs, ours, options.floor)
    return matches
      ? undefined
      : `${path} ${theirs} has changed, is out of order, or is below ${options.floor}`
  }
  if (typeof theirs === 'number' && typeof ours === 'number') {
    if (!options.exact && path.endsWith('.storeMs') && options.clocks.match(theirs, ours)) return undefined
    const near = !options.exact && /Ms$/.test(path) && Math.abs(theirs - ours) < NEAR_MS
    return near || theirs === ours ? undefined : `${path} ${theirs} instead of ${ours}`
  }
  if (!isObject(theirs) || !isObject(ours)) {
    return theirs === ours ? undefined : `${path} ${show(theirs)} instead of ${show(ours)}`
  }
  for (const name of new Set([...Object.keys(ours), ...Object.keys(theirs)])) {
    const text = firstDifference(theirs[name], ours[name], options, `${path}.${name}`)
    if (text !== undefined) return text
  }
  return undefined
}

/** Matches the store's fences of a key with the law's. Both have to rise together. */
export class FenceMatch {
  readonly #pairs = new Map<bigint, bigint>()

  match(theirs: bigint, ours: bigint, floor: bigint): boolean {
    if (this.#pairs.has(ours)) return this.#pairs.get(ours) === theirs
    if (theirs < floor) return false
    for (const [earlier, theirEarlier] of this.#pairs) {
      if (compare(ours, earlier) !== compare(theirs, theirEarlier)) return false
    }
    this.#pairs.set(ours, theirs)
    return true
  }
}

/** Matches the store's clock with the law's. They may count from different moments, and then run together. */
export class ClockMatch {
  #aheadMs: number | undefined

  match(theirs: number, ours: number): boolean {
    this.#aheadMs ??= theirs - ours
    return Math.abs(theirs - ours - this.#aheadMs) < NEAR_MS
  }
}

/** Far longer than a call, and far shorter than the difference between two terms of a history without time. */
const NEAR_MS = 20_000

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null
}

function compare(one: bigint, other: bigint): number {
  return one < other ? -1 : one > other ? 1 : 0
}
