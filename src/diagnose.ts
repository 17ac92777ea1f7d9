import { checkOptions, parseFlag } from './base/arguments.ts'
import { awaited } from './base/awaited.ts'
import { type Finding, isUnseenServer, milliseconds } from './base/diagnosis.ts'
import { explained } from './base/explained.ts'
import { look } from './base/read-only.ts'
import { within } from './base/within.ts'
import { openStore, schemeOf } from './connect.ts'
import type { Store } from './contract/store.ts'
import { isHoldfastError } from './errors.ts'
import type { DriverOptions } from './stores/driver.ts'
import { driverOf } from './stores/drivers.ts'

/** What {@link diagnose} found out about a store. */
export interface Diagnosis {
  /** The scheme of the URL: `redis`, `postgres`, … */
  readonly store: string
  /** The worst of the findings. */
  readonly verdict: Finding['verdict']
  /** What was checked, and what came of each check. */
  readonly findings: readonly Finding[]
}

/** How to look at a store. */
export interface DiagnoseOptions {
  /**
   * Whether the user of the URL may only read, or the server is a replica, and that is no problem. Then nothing is asked that needs
   * a right to write, and one finding says what was not checked for that. Default: false.
   */
  readonly readOnly?: boolean | undefined
}

/**
 * Looks at the store that a URL names, and says what may break locks there: whether it answers and how quickly, whether
 * its user may do what the store does, and what about its settings, clock and role should be otherwise. Takes no lock, and
 * writes no more than opening the store does. What is wrong with the store is a finding; it holds no passwords.
 *
 * ```ts
 * import { diagnose } from 'holdfast'
 *
 * const { verdict, findings } = await diagnose('redis://localhost:6379')
 * for (const { check, text } of findings) console.log(check, text)
 * if (verdict === 'problem') process.exitCode = 1
 * ```
 *
 * @throws {InvalidArgumentError} when the URL is not what it should be, or a package that the store needs is not installed.
 */
export async function diagnose(url: string, options: DiagnoseOptions = {}): Promise<Diagnosis> {
  checkOptions(options, ['readOnly'])
  const settings = { readOnly: parseFlag('readOnly', options.readOnly, false) }
  const [seen, known] = await awaited(() =>
    Promise.allSettled([general(url, settings), particular(url, settings)]),
  )
  // Both reject an invalid URL. The error of `general` is the readable one.
  if (seen.status === 'rejected') throw seen.reason
  if (known.status === 'rejected') throw known.reason
  const isOpen = seen.value.some(({ check, verdict }) => check === 'connection' && verdict === 'ok')
  const findings = [...seen.value, ...known.value.filter((finding) => isOpen || !isUnseenServer(finding))]
  return { store: schemeOf(url), verdict: worst(findings), findings }
}

function worst(findings: readonly Finding[]): Finding['verdict'] {
  for (const verdict of ['problem', 'warning'] as const) {
    if (findings.some((finding) => finding.verdict === verdict)) return verdict
  }
  return 'ok'
}

/** Findings that only this kind of store has. Of an unknown scheme {@link general} complains. */
async function particular(url: string, options: DriverOptions): Promise<readonly Finding[]> {
  const driver = await driverOf(schemeOf(url))
  return driver === undefined ? [] : driver.diagnose(url, options)
}

/** What can be seen of any store, as those who use it see it. */
async function general(url: string, options: DriverOptions): Promise<readonly Finding[]> {
  let store: Store
  const begun = performance.now()
  try {
    store = await openStore(url, options)
  } catch (error) {
    if (isHoldfastError(error, 'invalid-argument')) throw error
    return [{ check: 'connection', verdict: 'problem', text: explained(error) }]
  }
  const opened = milliseconds(performance.now() - begun)
  try {
    if (options.readOnly) {
      return [
        { check: 'connection', verdict: 'ok', text: `The store opens in ${opened}, and its user may look.` },
        { check: 'rights', verdict: 'warning', text: NOT_CHECKED },
        await attempt('round trip', () => roundTrip(() => look(store))),
      ]
    }
    return [
      { check: 'connection', verdict: 'ok', text: `The store opens in ${opened}, and its user may use it.` },
      await attempt('round trip', () =>
        // Finds nobody, and changes nothing.
        roundTrip(() => store.release({ key: 'is anybody there', id: '?', cancel: false })),
      ),
      await attempt('messages', () => messages(store)),
      await attempt('listing', () => listing(store)),
    ]
  } finally {
    await store.close()
  }
}

async function attempt(check: string, look: () => Promise<Finding>): Promise<Finding> {
  try {
    return await within(LIMIT_MS, look())
  } catch (error) {
    return { check, verdict: 'problem', text: explained(error) }
  }
}

async function roundTrip(ask: () => unknown): Promise<Finding> {
  const times: number[] = []
  for (let round = 0; round < ROUNDS; round += 1) {
    const begun = performance.now()
    await ask()
    times.push(performance.now() - begun)
  }
  const [median = 0] = times.sort((one, other) => one - other).slice(Math.floor(ROUNDS / 2))
  const check = 'round trip'
  if (median < SLOW_MS) return { check, verdict: 'ok', text: `A request takes ${milliseconds(median)}.` }
  return {
    check,
    verdict: 'warning',
    text: `A request takes ${milliseconds(median)}, and a lock two of them or more. Use a store that is closer, or keep each ttl above ${milliseconds(median * 20)}.`,
  }
}

async function messages(store: Store): Promise<Finding> {
  const check = 'messages'
  if (store.listen === undefined)
    return { check, verdict: 'ok', text: 'This store has no messages: waiters ask when it tells them to.' }
  try {
    await store.listen(() => {})
    return { check, verdict: 'ok', text: 'Waiters are woken when it is their turn.' }
  } catch (error) {
    const text = `Waiters cannot be woken when it is their turn, and ask now and then instead. ${explained(error)}`
    return { check, verdict: 'warning', text }
  }
}

async function listing(store: Store): Promise<Finding> {
  const check = 'listing'
  try {
    await store.inspect({ prefix: '', cursor: undefined, count: 1 })
    return { check, verdict: 'ok', text: 'Keys can be listed.' }
  } catch (error) {
    const text = `Keys cannot be listed, which holdfast ls and locks.inspect() do. ${explained(error)}`
    return { check, verdict: 'warning', text }
  }
}

const NOT_CHECKED =
  'Only what a user who may read can see was checked. Whether your application may take a key, and whether its waiters are woken, is not known.'
const LIMIT_MS = 5000
const ROUNDS = 9
const SLOW_MS = 100
