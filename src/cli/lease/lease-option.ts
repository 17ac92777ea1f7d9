import { randomUUID } from 'node:crypto'
import { readFileSync, renameSync, rmSync, statSync, writeFileSync, writeSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { messageOf } from '../../base/thrown.ts'
import { isHoldfastError, type Lease, type LeaseJson, type Locks } from '../../index.ts'
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

/** Continues the given lease. To adopt a lease is to renew it. */
export async function adoptGiven(
  locks: Locks,
  known: LeaseJson,
  options: { readonly ttl?: number | undefined } = {},
): Promise<Lease> {
  try {
    return await locks.adopt(known, options)
  } catch (error) {
    if (!isHoldfastError(error, 'invalid-argument')) throw error
    throw new UsageError('Expected the lease to be the JSON that `holdfast acquire` printed, got other JSON.')
  }
}

/**
 * Writes a new lease to where the next command finds it, and lets go of it without a release. If it cannot be written, nobody
 * could release it, so it is released at once. Resolves with the exit code.
 */
export async function handOn(lease: Lease, given: ParsedArguments): Promise<number> {
  const failure = write(lease, given)
  if (failure === undefined) return letGo(lease)
  await lease.release()
  complain(`the lease cannot be written (${failure}), so ${json(lease.key)} was released again`)
  return EXIT.noOutput
}

/** The same for a lease that was extended. Its owner works under it, and has its earlier text. So it is never released. */
export function handOnExtended(lease: Lease, given: ParsedArguments): number {
  const failure = write(lease, given)
  if (failure === undefined) return letGo(lease)
  complain(
    `the key is extended, but the new lease cannot be written (${failure}): the lease that you have still works for extend and release`,
  )
  letGo(lease)
  return EXIT.noOutput
}

function letGo(lease: Lease): number {
  const { remainingMs } = lease
  lease.detach()
  complain(
    `${json(lease.key)} stays taken for ${age(remainingMs)}, and nobody renews it: holdfast extend, or holdfast release`,
  )
  return EXIT.ok
}

/** Returns why the lease cannot be written. */
function write(lease: Lease, given: ParsedArguments): string | undefined {
  const line = `${json(lease)}\n`
  const path = given.text('lease-file')
  try {
    // At once: a stream would tell of a closed pipe or a full disk when the lease is let go already.
    if (path === undefined) writeSync(1, line)
    else if (isReplaced(path)) replaceFile(path, line)
    else writeFileSync(path, line, { mode: OWNER_ONLY })
    return undefined
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    return code ?? messageOf(error)
  }
}

/** A new file in the place of the path: an old file may have another mode or owner, or be a link to somewhere else. */
function replaceFile(path: string, text: string): void {
  // Its name is short, as that of the path may be as long as the file system allows.
  const written = join(dirname(path), `.holdfast-${randomUUID().slice(0, 8)}`)
  try {
    writeFileSync(written, text, { mode: OWNER_ONLY, flag: 'wx' })
    renameSync(written, path)
  } catch (error) {
    rmSync(written, { force: true })
    throw error
  }
}

/** A pipe, a device, an open file such as `/dev/fd/63`, and a link to one of them are written to, and never replaced. */
function isReplaced(path: string): boolean {
  if (OPEN_FILES.test(resolve(path))) return false
  const there = statSync(path, { throwIfNoEntry: false })
  return there === undefined || there.isFile()
}

const OPEN_FILES = /^\/(?:proc\/|dev\/(?:fd\/|stdout$|stderr$))/
const OWNER_ONLY = 0o600
