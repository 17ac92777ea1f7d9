import { expected } from '../base/arguments.ts'
import { show } from '../base/duration.ts'
import { InvalidArgumentError, StaleFenceError } from '../errors.ts'

/** The fence of a lease: a {@link Lease} itself (or its JSON), or the number as bigint or decimal text. */
export type Fence = bigint | string | FencedLease

/**
 * The part of a lease that is read. So `lease.toJSON()` works as well, and also a lease that another process received
 * as JSON.
 */
export interface FencedLease {
  /** The key that is held, and the default of `resource`. */
  readonly key: string
  /** The fencing token, as bigint or as decimal digits. */
  readonly fence: bigint | string
}

/** The fence as decimal text. Every guard sends it in this form. */
export function parseFence(fence: unknown): string {
  const value = isLease(fence) ? fence.fence : fence
  const digits = typeof value === 'bigint' ? String(value) : value
  if (typeof digits === 'string' && /^[1-9]\d{0,18}$/.test(digits) && BigInt(digits) <= MOST) return digits
  const precision = typeof value === 'number' ? ' (a number cannot keep every fence exactly)' : ''
  throw new InvalidArgumentError(
    `Expected \`fence\` to be a lease, or its fence as bigint or decimal text from 1 to ${MOST}, got ${show(value)}${precision}.`,
  )
}

/** The name of what is guarded. If the caller gave none, it is the key of the lease. */
export function parseResource(resource: unknown, fence: unknown): string {
  const name = resource === undefined ? keyOf(fence) : resource
  if (typeof name === 'string' && name !== '' && !UNSTORABLE.test(name) && byteLength(name) <= MOST_BYTES) {
    return name
  }
  throw expected('resource', `a text of 1 to ${MOST_BYTES} bytes without NUL and unpaired surrogates`, name)
}

export function staleFence(resource: string, fence: string, cause: unknown): StaleFenceError {
  return new StaleFenceError(
    `${show(resource)} has seen a later fence than ${fence}: somebody else has held the lock since. ` +
      'Nothing was written; stop, and do not repeat this work under a new fence.',
    { key: resource, cause },
  )
}

const MOST = 2n ** 63n - 1n
/** PostgreSQL allows an entry of an index 2,704 bytes at most. */
const MOST_BYTES = 2000
const UNSTORABLE = /\0|\p{Surrogate}/u

/**
 * Holders of a semaphore, and readers, hold the key together, each under a fence of its own. If the key alone named the
 * resource, the newest holder would shut out the others, which hold it just as rightly.
 */
function keyOf(fence: unknown): string {
  if (!isLease(fence)) {
    throw new InvalidArgumentError(
      'Expected `resource` to be the name of what is guarded, got undefined. It may be left out only with a lease, for its key.',
    )
  }
  const { limit } = (fence as { toJSON?(): { limit?: unknown } }).toJSON?.() ?? (fence as { limit?: unknown })
  if (limit === undefined || limit === 1) return fence.key
  throw new InvalidArgumentError(
    'Expected `resource` to be given with a lease that shares its key (a permit or a read lock): name what this holder alone may write.',
  )
}

function isLease(value: unknown): value is FencedLease {
  return typeof value === 'object' && value !== null && 'fence' in value && 'key' in value
}

function byteLength(text: string): number {
  return new TextEncoder().encode(text).length
}
