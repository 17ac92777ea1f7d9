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

  /** As a finished step of the work that was asked to go: rejects with the reason of the signal. */
  settle(): void {
    this.#settle({ error: this.term.signal.reason })
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

/** Campaigns of several names, in one or two processes. */
export class Fleet {
  readonly #open: (place: 'here' | 'other') => Election
  readonly #members = new Map<
    string,
    { election: Election; office: Office; run: ReturnType<typeof campaign> }
  >()
  readonly #terms: string[] = []

  constructor(open: (place: 'here' | 'other') => Election) {
    this.#open = open
  }

  join(name: string, options: CampaignOptions, place: 'here' | 'other' = 'here', polite = true): void {
    const election = this.#open(place)
    const office = new Office(polite)
    const work = office.work
    const noted = Object.assign(office, {
      work: (...rest: Parameters<typeof work>) => {
        this.#terms.push(name)
        return work(...rest)
      },
    })
    this.#members.set(name, { election, office, run: campaign(election, noted, { value: name, ...options }) })
  }

  get leader(): string {
    return (
      [...this.#members].find(([, { office }]) => office.inside > 0 && !office.term.lost.aborted)?.[0] ?? ''
    )
  }

  /** Who led, in order. */
  terms(): readonly string[] {
    return this.#terms
  }

  office(name: string) {
    const office = this.#members.get(name)?.office
    if (office === undefined) throw new Error(`${name} is no candidate`)
    return office
  }

  election(name: string): Election {
    return this.#members.get(name)?.election ?? this.#open('here')
  }

  leave(name: string): void {
    this.#members.get(name)?.run.end()
  }

  async leaveAll(): Promise<void> {
    for (const { run } of this.#members.values()) run.end()
    await Promise.allSettled(Array.from(this.#members.values(), ({ run }) => run.over))
  }
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
