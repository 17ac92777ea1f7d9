import { checkObject, parseFunction } from '../base/arguments.ts'
import { delayCases } from './conformance-delays.ts'
import { expiryCases } from './conformance-expiry.ts'
import { grantCases } from './conformance-grants.ts'
import { holdingCases } from './conformance-holding.ts'
import { manyCases } from './conformance-many.ts'
import { patienceCases } from './conformance-patience.ts'
import { queueCases } from './conformance-queue.ts'
import { roomCases } from './conformance-rooms.ts'
import { type ConformanceScript, type ConformanceSubject, Scene, TooSlow } from './conformance-scene.ts'
import { wakeCases } from './conformance-wakes.ts'

/** One statement about a store, and how to check it. */
export interface ConformanceCase {
  /** A sentence that is true of every store. */
  readonly name: string
  /** Resolves if the sentence is true of this store. Otherwise rejects with an `AssertionError`, or the store's error. */
  run(): Promise<void>
}

/**
 * The tests that every store of Holdfast passes, for any test runner. Cases cover each promise of the contract and each
 * feature of the law. They are independent of one another, use random keys under `conformance:` and leave nothing behind.
 * The whole suite takes about ten seconds, most of them to wait for something to expire.
 *
 * A case about a short time measures whether this machine was fast enough. If it was not, the case repeats itself with
 * longer times.
 *
 * ```ts
 * import { test } from 'node:test'
 * import { storeConformance } from 'holdfast/testing'
 * import { myStore } from './my-store.js'
 *
 * const cases = storeConformance({ open: () => myStore('localhost:4711') })
 * for (const { name, run } of cases) test(name, run)
 * ```
 *
 * @throws {InvalidArgumentError} when `open` is not a function.
 */
export function storeConformance(subject: ConformanceSubject): readonly ConformanceCase[] {
  checkObject(subject, 'open')
  parseFunction('open', subject.open)
  return SCRIPTS.filter((script) => applies(script, subject)).map((script) => ({
    name: script.name,
    run: () => play(script, subject),
  }))
}

const SCRIPTS: readonly ConformanceScript[] = [
  ...holdingCases,
  ...queueCases,
  ...expiryCases,
  ...patienceCases,
  ...delayCases,
  ...wakeCases,
  ...grantCases,
  ...roomCases,
  ...manyCases,
]

function applies(script: ConformanceScript, subject: ConformanceSubject): boolean {
  if (script.needs === 'push') return subject.pushes !== false
  if (script.needs === 'grants') return subject.grants === true
  if (script.needs === 'own-clock') return subject.sharesClock !== true
  if (script.needs === 'semaphores') return subject.semaphores !== false
  if (script.needs === 'exact-order') return subject.order !== 'best-effort'
  if (script.needs === 'lazy-expiry') return subject.expiresUnasked !== true && subject.pushes !== false
  return true
}

/** How much longer the short times of a case are each time that it is repeated, because this machine was too slow. */
const STRETCHES = [1, 4, 16, 50]

async function play(script: ConformanceScript, subject: ConformanceSubject): Promise<void> {
  for (const stretch of STRETCHES) {
    const scene = new Scene(subject, stretch)
    try {
      await script.play(scene)
      await scene.leaveNothing()
      return
    } catch (error) {
      if (!(error instanceof TooSlow) || stretch === STRETCHES.at(-1)) throw error
    } finally {
      await scene.end()
    }
  }
}
