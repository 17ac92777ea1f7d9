import { expected } from '../base/arguments.ts'

/** How keys are grouped in metrics, as a metric for each key would be too many. */
export interface GroupOptions {
  /** The group of a key. Default: the part before its first colon, `invoice` of `invoice:42`. */
  readonly group?: ((key: string) => string) | undefined
  /**
   * How many groups there may be, and how many elections. Of locks, all calls for one registry or meter count together. Further ones are
   * counted as `other`. Default: 50.
   */
  readonly maxGroups?: number | undefined
}

/** The names that were counted until now. The calls for one registry share them, so that `maxGroups` limits its metrics. */
export interface KnownNames {
  readonly groups: Set<string>
  readonly elections: Set<string>
}

export function newKnownNames(): KnownNames {
  return { groups: new Set(), elections: new Set() }
}

/** The labels that stand for a key. */
export interface KeyGroups {
  readonly groupOf: (key: string) => string
  /** An election is a label of its own: if two of a group were counted together, the leader of one would hide that the other has none. */
  readonly electionOf: (key: string) => string
}

/** @throws {InvalidArgumentError} at once; later the error would stay in an event listener and numbers would be missing. */
export function keyGroups(
  { group = beforeColon, maxGroups = 50 }: GroupOptions,
  known: KnownNames = newKnownNames(),
): KeyGroups {
  if (typeof group !== 'function') throw expected('group', 'a function of a key', group)
  if (!Number.isSafeInteger(maxGroups) || maxGroups < 1)
    throw expected('maxGroups', 'a whole number from 1', maxGroups)
  return {
    groupOf: bounded((key) => textOf(group(key)), maxGroups, known.groups),
    electionOf: bounded((key) => key, maxGroups, known.elections),
  }
}

/** The name of a thing, or `other` if there are too many. */
export function bounded(
  nameOf: (key: string) => string,
  most: number,
  known: Set<string> = new Set(),
): (key: string) => string {
  return (key) => {
    const name = nameOf(key)
    if (known.has(name)) return name
    if (known.size >= most) return 'other'
    known.add(name)
    return name
  }
}

/** An async function has no group by the time that a number is counted. Its rejection would end the process. */
function textOf(group: unknown): string {
  if (!(group instanceof Promise)) return String(group)
  group.catch(() => {})
  throw expected('group', 'a function that returns a text', group)
}

function beforeColon(key: string): string {
  const end = key.indexOf(':')
  return end === -1 ? key : key.slice(0, end)
}
