import { isHoldfastError } from '../../src/errors.ts'
import { type ConformanceCase, type ConformanceSubject, storeConformance } from '../../src/testing/index.ts'
import { unlessLate } from '../base/measured.ts'

/**
 * The conformance suite for a store with a server. A busy machine may give the server no time to answer. Such a case is played
 * again; an answer that is wrong is not.
 */
export function conformanceCases(subject: ConformanceSubject): readonly ConformanceCase[] {
  return storeConformance(subject).map(({ name, run }) => ({
    name,
    run: () => unlessLate(run, (error) => isHoldfastError(error, 'store-unavailable')),
  }))
}
