import { createHash } from 'node:crypto'
import { expected } from '../../../base/arguments.ts'

/**
 * The number under which PostgreSQL knows the advisory lock of a key. It is the first eight bytes of the SHA-256 of the
 * key's UTF-8 text, as a signed big-endian number. The same key has the same number in every version of this library,
 * so old and new processes exclude one another. Any other program can compute it.
 *
 * Two keys with the same number exclude one another. That costs waiting and is never unsafe. Among a million keys there
 * is such a pair with a chance of 1 in 37 million.
 *
 * ```ts
 * import { advisoryLockId } from 'holdfast/postgres'
 *
 * // SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND ((classid::bigint << 32) | objid::bigint) = $1
 * console.log(advisoryLockId('account:42'))
 * ```
 *
 * @throws {InvalidArgumentError} unless the key is a string with at least one character.
 */
export function advisoryLockId(key: string): bigint {
  if (typeof key !== 'string' || key === '') {
    throw expected('key', 'a string with at least one character', key)
  }
  return createHash('sha256').update(key).digest().readBigInt64BE()
}
