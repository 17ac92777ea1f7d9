import { randomInt } from 'node:crypto'
import { accessSync, constants, existsSync, mkdirSync, readdirSync, statSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import type { ParsedArguments } from '../arguments.ts'
import { givenUrl } from '../store-option.ts'
import { age } from '../text.ts'
import { expected, UsageError } from '../usage-error.ts'
import { type ProxiedUrl, proxiedUrl } from './proxied-url.ts'
import type { FaultKind } from './record.ts'

export interface TorturePlan {
  /** `undefined`: a temporary file. */
  readonly storeUrl: string | undefined
  readonly proxied: ProxiedUrl | undefined
  readonly processes: number
  readonly durationMs: number
  readonly ttlMs: number
  readonly settleMs: number
  readonly kinds: readonly FaultKind[]
  /** Why there are no cuts and outages, although nobody has left them out. */
  readonly withoutCuts: string | undefined
  readonly hook: string | undefined
  readonly forgets: boolean
  readonly seed: string
  readonly out: string
  readonly asJson: boolean
}

const KINDS = ['kill', 'pause', 'cut', 'outage', 'clock'] as const

export function planOf(given: ParsedArguments): TorturePlan {
  given.refuseWords()
  const storeUrl = givenUrl(given)
  const ttlMs = given.duration('ttl', { leastMs: 500 }) ?? 2000
  const settleMs = given.duration('settle', { leastMs: 1000 }) ?? Math.max(30_000, 5 * ttlMs)
  if (settleMs < 3 * ttlMs)
    throw expected('--settle', `at least three times --ttl, which is ${age(ttlMs)}`, given.text('settle'))
  const seed = given.count('seed', { least: 0, most: 999_999_999 }) ?? randomInt(1_000_000_000)
  const hook = hookOf(given)
  if (given.flag('forgets') && hook === undefined)
    throw new UsageError('Expected --on-fault beside --forgets.')
  return {
    storeUrl,
    ...nemesisOf(given, storeUrl, hook),
    processes: given.count('processes', { least: 2, most: 32 }) ?? 4,
    durationMs: given.duration('for', { leastMs: 1000 }) ?? 60_000,
    ttlMs,
    settleMs,
    hook,
    forgets: given.flag('forgets'),
    seed: String(seed),
    out: folderOf(given.text('out') ?? `holdfast-torture-${seed}`),
    asJson: given.flag('json'),
  }
}

function hookOf(given: ParsedArguments): string | undefined {
  const file = given.text('on-fault')
  if (file === undefined) return undefined
  if (!existsSync(file) || !statSync(file).isFile())
    throw expected('--on-fault', 'the path of a program', file)
  if (!isExecutable(file)) throw expected('--on-fault', 'a file that can be executed', file)
  return resolve(file)
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK)
    return true
  } catch {
    return false
  }
}

function folderOf(out: string): string {
  if (!isFree(out)) throw expected('--out', 'a new or empty folder', out)
  return resolve(out)
}

function isFree(out: string): boolean {
  try {
    const found = statSync(out, { throwIfNoEntry: false })
    return found === undefined || (found.isDirectory() && readdirSync(out).length === 0)
  } catch (error) {
    throw unwritable(out, error)
  }
}

/** Makes the folder of the report, and the one of the history in it. */
export function makeHistoryFolder({ out }: TorturePlan): string {
  const folder = join(out, 'history')
  try {
    // Where the parent is there and takes no folder, as in /proc, the recursive call would never end.
    if (!existsSync(out)) mkdirSync(out, { recursive: !existsSync(dirname(out)) })
    mkdirSync(folder)
  } catch (error) {
    throw unwritable(out, error)
  }
  return folder
}

function unwritable(out: string, error: unknown): Error {
  const { code } = error as NodeJS.ErrnoException
  return expected('--out', `a folder that can be written (${code})`, out)
}

function nemesisOf(
  given: ParsedArguments,
  storeUrl: string | undefined,
  hook: string | undefined,
): Pick<TorturePlan, 'kinds' | 'proxied' | 'withoutCuts'> {
  const chosen = given.text('nemesis')
  const kinds = chosen === undefined ? KINDS : parsedKinds(chosen)
  const found = proxiedUrl(storeUrl ?? 'sqlite:')
  const proxied = 'because' in found ? undefined : found
  const ofServer: readonly FaultKind[] = hook === undefined ? [] : ['server']
  if (!('because' in found)) return { kinds: [...kinds, ...ofServer], proxied, withoutCuts: undefined }
  const cuts: readonly FaultKind[] = kinds.filter((kind) => kind === 'cut' || kind === 'outage')
  if (chosen !== undefined && cuts.length > 0)
    throw expected('--nemesis', `without ${cuts.join(' and ')} for this store (${found.because})`, chosen)
  const left = kinds.filter((kind) => !cuts.includes(kind))
  return { kinds: [...left, ...ofServer], proxied, withoutCuts: cuts.length > 0 ? found.because : undefined }
}

function parsedKinds(chosen: string): readonly (typeof KINDS)[number][] {
  if (chosen.trim() === 'none') return []
  const names = new Set(chosen.split(',').map((name) => name.trim()))
  return Array.from(names, (name) => {
    const kind = KINDS.find((one) => one === name)
    if (kind !== undefined) return kind
    throw expected('--nemesis', `some of ${KINDS.join(', ')}, with commas, or none`, chosen)
  })
}
