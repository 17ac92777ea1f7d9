import { textsOf } from './answers.ts'
import type { RawConnection } from './client-link.ts'
import { permitted } from './replies.ts'

/**
 * The names of keys as SCAN finds them, some hundred at a time. Ends early if the user may not ask for them, or the server is so far
 * away that the time is over: the doctor has other questions, too.
 */
export async function* scannedNames(
  connection: RawConnection,
  { pattern, mostScans }: { readonly pattern?: string; readonly mostScans: number },
): AsyncGenerator<readonly string[]> {
  let cursor = '0'
  const begun = performance.now()
  for (let scans = 0; scans < mostScans; scans += 1) {
    const match = pattern === undefined ? [] : ['MATCH', pattern]
    const reply = await permitted(connection.send('SCAN', [cursor, ...match, 'COUNT', '1000']))
    const [next, found] = Array.isArray(reply) ? (reply as readonly unknown[]) : ['0', []]
    yield textsOf(found)
    cursor = String(next)
    if (cursor === '0' || performance.now() - begun > LONGEST_MS) return
  }
}

const LONGEST_MS = 1000
