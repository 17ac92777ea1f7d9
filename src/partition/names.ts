import { MOST_KEYS } from './member-value.ts'
import { murmur3 } from './murmur3.ts'
import type { AnyKey } from './options.ts'

/** The key of the lock of one of the keys. */
export function lockKey(name: string, key: AnyKey): string {
  return `${name}:${key}`
}

/** The group of all processes with the same list of keys. Its name is the same in each of them. */
export function groupName(name: string, keys: readonly AnyKey[]): string {
  const isNumbered = typeof keys[0] === 'number'
  return `${name}#${keys.length}${isNumbered ? '' : `.${murmur3(JSON.stringify(keys))}`}`
}

/** The partition whose members hold this key; `undefined`: it is none of a partition. A group of a user may be called like one. */
export function partitionOfRoster(key: string): NamedPartition | undefined {
  const [, name, size = '', list] = /^(.+)#(\d{1,4})(\.\d+)?#members$/s.exec(key) ?? []
  const keyCount = Number(size)
  if (name === undefined || keyCount === 0 || keyCount > MOST_KEYS) return undefined
  return { name, keyCount, isNumbered: list === undefined }
}

export interface NamedPartition {
  readonly name: string
  readonly keyCount: number
  /** Whether the keys are the numbers from 0. */
  readonly isNumbered: boolean
}
