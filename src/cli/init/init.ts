import { initRedlock } from '../../stores/redlock/index.ts'
import type { ParsedArguments } from '../arguments.ts'
import { EXIT } from '../exit-codes.ts'
import { givenUrl, gotInstead } from '../store-option.ts'
import { print } from '../terminal.ts'
import { json } from '../text.ts'
import { UsageError } from '../usage-error.ts'

export async function initServers(given: ParsedArguments): Promise<number> {
  given.refuseWords()
  const { servers, written } = await initRedlock(urlOf(given), { wait: given.duration('wait') })
  if (given.flag('json')) print(json({ servers, written }))
  else print(written ? `The ${servers} servers are ready.` : `The ${servers} servers were ready before.`)
  return EXIT.ok
}

function urlOf(given: ParsedArguments): string {
  const url = givenUrl(given)
  if (url !== undefined && /^redlock:/i.test(url)) return url
  throw new UsageError(`Expected --store or HOLDFAST_STORE to be a redlock: URL, got ${gotInstead(url)}.`)
}
