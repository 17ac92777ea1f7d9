import type { ParsedArguments, Subcommand } from '../arguments.ts'
import { openLocks, storeOptions, urlOf } from '../store-option.ts'
import { json } from '../text.ts'
import { expected, UsageError } from '../usage-error.ts'
import { printLooks } from './batch.ts'
import { showLive } from './live.ts'
import { type RowOrder, SORTS, type Sort } from './rows.ts'
import { storeName } from './store-name.ts'

export const top: Subcommand = {
  name: 'top',
  usage: '[options]',
  summary: 'Shows who holds what and who waits, live; in pipes and files one look after the other.',
  options: {
    interval: { short: 'd', value: 'DURATION', help: 'from one look to the next; default: 1s' },
    prefix: { short: 'p', value: 'PREFIX', help: 'only keys that begin with it' },
    sort: { short: 'o', value: 'COLUMN', help: `${SORTS.join(', ')}; default: waiting` },
    reverse: { short: 'r', help: 'sort the other way round' },
    batch: { short: 'b', help: 'print one look after the other, also in a terminal' },
    count: { short: 'n', value: 'N', help: 'end after so many looks; implies --batch' },
    once: { help: 'the same as --count 1' },
    json: { help: 'one JSON object a look and line; implies --batch' },
    ...storeOptions(),
  },
  details: `In the terminal h shows the keys, and q quits. Without a terminal, or with
--batch, it prints looks until it is ended, as top -b does; with --count it
exits with 69 when the store goes away before the last of them.`,
  async run(given: ParsedArguments): Promise<number> {
    const [word] = given.words
    if (word !== undefined)
      throw new UsageError(`Expected no words, got ${json(word)}. A prefix goes into --prefix.`)
    const everyMs = given.duration('interval', { leastMs: SHORTEST_MS }) ?? 1000
    const count = given.flag('once') ? 1 : given.count('count', { least: 1, most: 1_000_000_000 - 1 })
    const url = await urlOf(given)
    const options = {
      store: storeName(url),
      prefix: given.text('prefix') ?? '',
      everyMs,
      order: orderOf(given),
    }
    const asJson = given.flag('json')
    await using locks = await openLocks(url)
    if (count === undefined && !asJson && !given.flag('batch') && isLive())
      return await showLive(locks, options)
    return await printLooks(locks, { ...options, count, asJson })
  },
}

function orderOf(given: ParsedArguments): RowOrder {
  const isReversed = given.flag('reverse')
  const wanted = given.text('sort')
  if (wanted === undefined) return { sort: 'waiting', isReversed }
  if (!SORTS.includes(wanted as Sort)) throw expected('--sort', `one of ${SORTS.join(', ')}`, wanted)
  return { sort: wanted as Sort, isReversed }
}

/** Whether input and output are a terminal that can show a changing page. */
function isLive(): boolean {
  return process.stdin.isTTY && process.stdout.isTTY && process.env['TERM'] !== 'dumb'
}

const SHORTEST_MS = 100
