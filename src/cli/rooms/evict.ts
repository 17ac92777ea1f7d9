import type { ParsedArguments, Subcommand } from '../arguments.ts'
import { EXIT } from '../exit-codes.ts'
import { openLocks, storeOptions, urlOf } from '../store-option.ts'
import { complain, print } from '../terminal.ts'
import { json, plain } from '../text.ts'
import { UsageError } from '../usage-error.ts'

export const evict: Subcommand = {
  name: 'evict',
  usage: '[options] KEY --reason TEXT',
  summary: 'Takes a key away from those who hold it or wait for it.',
  options: {
    reason: { value: 'TEXT', help: 'what the holder is told; required' },
    id: { value: 'ID', help: 'only this ticket (see `holdfast show`); default: all of the key' },
    json: { help: 'one JSON object on one line' },
    ...storeOptions(),
  },
  details: `A holder is told, but it may be in the middle of a write: only fences stop that.
Exits with 1 when there was nobody to evict.`,
  async run(given: ParsedArguments): Promise<number> {
    const key = given.word('one KEY')
    const reason = given.text('reason')
    if (reason === undefined) throw new UsageError('Expected --reason followed by TEXT, got nothing.')
    const id = given.text('id')
    await using locks = await openLocks(await urlOf(given))
    const evicted = await (id === undefined
      ? locks.evictAll(key, { reason })
      : locks.evict(key, id, { reason }))
    if (given.flag('json')) print(json({ key, evicted }))
    else for (const each of evicted) print(`evicted ${plain(each)}`)
    if (evicted.length > 0) return EXIT.ok
    if (!given.flag('json'))
      complain(`nobody${id === undefined ? '' : ' of this id'} holds or waits for ${json(key)}`)
    return EXIT.failed
  },
}
