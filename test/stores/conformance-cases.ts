import type { RenewAnswer, Store, Ticket } from '../../src/contract/store.ts'
import { isHoldfastError, StoreError } from '../../src/errors.ts'
import { grantCases } from '../../src/testing/conformance-grants.ts'
import { type ConformanceCase, type ConformanceSubject, storeConformance } from '../../src/testing/index.ts'
import { unlessLate } from '../base/measured.ts'

/**
 * The conformance suite for a store with a server. A busy machine may give the server no time to answer. Such a case is played
 * again; an answer that is wrong is not.
 */
export function conformanceCases(subject: ConformanceSubject): readonly ConformanceCase[] {
  const open = async (): Promise<Store> => answeringAll(await subject.open())
  return storeConformance({ ...subject, open }).map(({ name, run }) => ({
    name,
    run: () => unlessLate(run, (error) => isHoldfastError(error, 'store-unavailable')),
  }))
}

/** Whether the case is about messages that are leases. */
export function isAboutGrants({ name }: ConformanceCase): boolean {
  return grantCases.some((script) => script.name === name)
}

/** The store, but a renewal fails if one of several servers has not answered. A store may leave out the tickets of this server. */
function answeringAll(store: Store): Store {
  const renew = async (tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> => {
    const answers = await store.renew(tickets)
    if (Array.from(answers, (answer: unknown) => answer).includes(undefined))
      throw new StoreError('store-unavailable', 'A server has not answered about its tickets.')
    return answers
  }
  return new Proxy(store, {
    get(_, name: keyof Store) {
      if (name === 'renew') return renew
      const member = store[name]
      return typeof member === 'function' ? member.bind(store) : member
    },
  })
}
