import type { ParsedArguments } from '../arguments.ts'
import { EXIT } from '../exit-codes.ts'
import { openLocks } from '../open-locks.ts'
import { whereOf } from '../store-name.ts'
import { placeOf } from '../store-option.ts'
import { complain, print } from '../terminal.ts'
import { json, plain } from '../text.ts'
import { UsageError } from '../usage-error.ts'

export async function evictTickets(given: ParsedArguments): Promise<number> {
  const key = given.word('one KEY')
  const reason = given.text('reason')
  if (reason === undefined) throw new UsageError('Expected --reason followed by TEXT, got nothing.')
  const id = given.text('id')
  const place = await placeOf(given)
  await using locks = await openLocks(place.url)
  const evicted = await (id === undefined
    ? locks.evictAll(key, { reason })
    : locks.evict(key, id, { reason }))
  if (given.flag('json')) print(json({ key, evicted }))
  else for (const each of evicted) print(`evicted ${plain(each)}`)
  if (evicted.length > 0) return EXIT.ok
  if (!given.flag('json'))
    complain(
      `nobody${id === undefined ? '' : ' of this id'} holds or waits for ${json(key)} ${whereOf(place)}`,
    )
  return EXIT.failed
}
