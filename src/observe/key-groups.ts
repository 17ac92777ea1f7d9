import { expected } from '../base/arguments.ts'

/** How keys are grouped in metrics, as a metric for each key would be too many. */
export interface GroupOptions {
  /** The group of a key. Default: the part before its first colon, `invoice` of `invoice:42`. */
  readonly group?: ((key: string) => string) | undefined
  /** How many groups there may be. Keys of further groups are counted as `other`. Default: 50. */
  readonly maxGroups?: number | undefined
}

/** @throws {InvalidArgumentError} at once; later the error would stay in an event listener and numbers would be missing. */
export function keyGroups({ group = beforeColon, maxGroups = 50 }: GroupOptions): (key: string) => string {
  if (typeof group !== 'function') throw expected('group', 'a function of a key', group)
  if (!Number.isSafeInteger(maxGroups) || maxGroups < 1)
    throw expected('maxGroups', 'a whole number from 1', maxGroups)
  const known = new Set<string>()
  return (key) => {
    const name = String(group(key))
    if (known.has(name)) return name
    if (known.size >= maxGroups) return 'other'
    known.add(name)
    return name
  }
}

function beforeColon(key: string): string {
  const end = key.indexOf(':')
  return end === -1 ? key : key.slice(0, end)
}
