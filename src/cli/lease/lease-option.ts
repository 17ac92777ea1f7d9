import { readFileSync, writeFileSync, writeSync } from 'node:fs'
import { messageOf } from '../../base/thrown.ts'
import type { Lease, LeaseJson } from '../../index.ts'
import type { ParsedArguments } from '../arguments.ts'
import { EXIT } from '../exit-codes.ts'
import { complain } from '../terminal.ts'
import { age, json } from '../text.ts'
import { UsageError } from '../usage-error.ts'

/** The lease that an earlier command has printed, or written into a file. The library checks its fields. */
export function givenLease(given: ParsedArguments): LeaseJson {
  const path = given.text('lease-file')
  if (path !== undefined) given.refuseWords(' The lease is in the file.')
  const text = path === undefined ? given.word('one LEASE or --lease-file') : textOf(path)
  try {
    return JSON.parse(text)
  } catch {
    // Not the text itself, which may be long.
    throw new UsageError('Expected the lease to be the JSON that `holdfast acquire` printed, got other text.')
  }
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw new UsageError(
      `Expected --lease-file to be a file that can be read, got ${code ?? messageOf(error)}.`,
    )
  }
}

/**
 * Writes the lease to where the next command finds it, and lets go of it without a release. Where it cannot be written nobody
 * could release it, so it is released at once. Resolves with the exit code.
 */
export async function handOn(lease: Lease, given: ParsedArguments): Promise<number> {
  const line = `${json(lease)}\n`
  const path = given.text('lease-file')
  try {
    // At once: a stream would tell of a closed pipe or a full disk when the lease is let go already.
    if (path === undefined) writeSync(1, line)
    else writeFileSync(path, line, { mode: 0o600 })
  } catch (error) {
    await lease.release()
    const { code } = error as NodeJS.ErrnoException
    complain(
      `the lease cannot be written (${code ?? messageOf(error)}), so ${json(lease.key)} was released again`,
    )
    return EXIT.noOutput
  }
  const { remainingMs } = lease
  lease.detach()
  complain(
    `${json(lease.key)} stays taken for ${age(remainingMs)}, and nobody renews it: holdfast extend, or holdfast release`,
  )
  return EXIT.ok
}
