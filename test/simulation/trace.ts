/**
 * The events of a history, in order. They are kept as values, and put into words only when a person wants to read them.
 */
export class Trace {
  readonly #now: () => number
  readonly #entries: (readonly [at: number, who: string, what: string, details: readonly unknown[]])[] = []

  constructor(now: () => number) {
    this.#now = now
  }

  note(who: string, what: string, ...details: readonly unknown[]): void {
    this.#entries.push([this.#now(), who, what, details])
  }

  /** The last events, one line each: milliseconds since the start, who, what. */
  text(last: number = Number.POSITIVE_INFINITY): string {
    return this.#entries
      .slice(Math.max(0, this.#entries.length - last))
      .map(([at, who, what, details]) =>
        [at.toFixed(3).padStart(12), who.padEnd(6), what, ...details.map(inWords)].join(' '),
      )
      .join('\n')
  }
}

function inWords(detail: unknown): string {
  if (typeof detail === 'string') return detail
  if (detail instanceof Error) return `${detail.name}: ${detail.message.slice(0, 90)}`
  return (
    JSON.stringify(detail, (_name, value: unknown) => (typeof value === 'bigint' ? `${value}` : value)) ??
    'nothing'
  )
}
