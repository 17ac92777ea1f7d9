import { reportOf } from '../base/thrown.ts'
import { isHoldfastError } from '../errors.ts'
import type { Doing } from '../worker/index.ts'

/** What was done as something went wrong. `membership`: the process joined the others, or told them which keys it has. */
export type PartitionDoing = Doing | 'membership'

/**
 * Warns of failures. When the store is away, each of thousands of keys fails: of failures that are alike, one is told within
 * {@link QUIET_MS}, and the next one says how many were not.
 */
export function warnOfError(
  name: string,
): (
  error: unknown,
  context: { readonly key: string | number | undefined; readonly during: PartitionDoing },
) => void {
  const told = new Map<string, { readonly at: number; more: number }>()
  return (error, { key, during }) => {
    const kind = `${during} ${isHoldfastError(error) ? error.code : reportOf(error).split('\n', 1)}`
    const now = performance.now()
    const before = told.get(kind)
    if (before !== undefined && now - before.at < QUIET_MS) {
      before.more += 1
      return
    }
    if (told.size >= MOST_KINDS) told.clear()
    told.set(kind, { at: now, more: 0 })
    const of = key === undefined ? '' : `, key ${JSON.stringify(key)}`
    const more = before === undefined || before.more === 0 ? '' : ` Not told: ${before.more} more like it.`
    warn(
      `The partition ${JSON.stringify(name)}${of} ${FAILED[during]}${outlookOf(error, during)}${more} See \`onError\`.`,
      error,
    )
  }
}

/** Empty if that depends on more than this failure: the partition may have been told to stop. */
function outlookOf(error: unknown, during: PartitionDoing): string {
  if (during === 'hold' && isHoldfastError(error, 'closed')) return ' It is stopped.'
  return during === 'acquire' || during === 'membership' ? ' It goes on by itself.' : ''
}

export function warn(message: string, error: unknown): void {
  process.emitWarning(message, {
    type: 'HoldfastWarning',
    code: 'HOLDFAST_PARTITION',
    detail: reportOf(error),
  })
}

const FAILED: Readonly<Record<PartitionDoing, string>> = {
  membership: 'could not tell the others of this process.',
  acquire: 'could not be asked for.',
  hold: 'was lost.',
  start: 'could not start its work.',
  work: 'was told that its work failed.',
  stop: 'could not end its work.',
}

const QUIET_MS = 10_000
const MOST_KINDS = 100
