import { onTestFinished } from 'vitest'
import type { CampaignOptions, Election, Leader, Leadership } from '../../src/index.ts'
import type { Scene } from '../engine/scene.ts'

/** Work that leads until it is told to settle, or its signal aborts. */
export class Office {
  terms: Leadership[] = []
  inside = 0
  most = 0
  #settle: (how: { value?: string; error?: unknown }) => void = () => {}

  /** Whether the work settles when it is asked to resign. */
  readonly polite: boolean

  constructor(polite = true) {
    this.polite = polite
  }

  readonly work = (leadership: Leadership): Promise<string> => {
    this.terms.push(leadership)
    this.inside += 1
    this.most = Math.max(this.most, this.inside)
    return new Promise<string>((resolve, reject) => {
      this.#settle = ({ value, error }) => (error === undefined ? resolve(value ?? '') : reject(error))
      if (this.polite) leadership.signal.addEventListener('abort', () => reject(leadership.signal.reason))
    }).finally(() => {
      this.inside -= 1
    })
  }

  finish(value: string): void {
    this.#settle({ value })
  }

  fail(error: unknown): void {
    this.#settle({ error })
  }

  get term(): Leadership {
    const term = this.terms.at(-1)
    if (term === undefined) throw new Error('It has never led')
    return term
  }
}

/** A campaign that ends with the test. */
export function campaign(election: Election, office: Office, options: CampaignOptions = {}) {
  const end = new AbortController()
  const over = election.campaign({ signal: end.signal, ...options }, office.work)
  over.catch(() => {})
  return { over, end: () => end.abort(new Error('the test is over')) }
}

/** Records the terms that it observes, and is never slow. */
export function observer(scene: Scene, election: Election) {
  const end = new AbortController()
  const seen: (Leader | null)[] = []
  const over = (async () => {
    for await (const leader of election.observe({ signal: end.signal })) seen.push(leader)
  })()
  onTestFinished(async () => {
    end.abort()
    await scene.clock.until(over)
  })
  return { seen, end: () => end.abort(), over }
}
