/**
 * Until when a window has too few points, as the store has said. Within that time calls are refused without asking the store. Remembers it for
 * a second at most, so that points that an operator gives back are noticed.
 */
export class KnownRefusals {
  /** In the order in which they came, so those to forget stand in front. */
  readonly #byKey = new Map<string, KnownRefusal>()

  /** Notes how long after `askedAt` the key will have too few points for a call of so many `units`. */
  add(key: string, { units, askedAt, untilFreeMs }: NewRefusal): void {
    this.#byKey.delete(key)
    for (const [old, refusal] of this.#byKey) {
      if (this.#byKey.size < MOST_KEYS && refusal.forgetAt > askedAt) break
      this.#byKey.delete(old)
    }
    this.#byKey.set(key, { units, freeAt: askedAt + untilFreeMs, forgetAt: askedAt + REMEMBERED_MS })
  }

  /** How long the window still refuses such a call, in milliseconds. Undefined if only the store can say. */
  untilFreeMs(key: string, units: number): number | undefined {
    const known = this.#byKey.get(key)
    if (known === undefined || known.units !== units) return undefined
    const now = performance.now()
    return now < known.freeAt && now < known.forgetAt ? Math.ceil(known.freeAt - now) : undefined
  }
}

/** `askedAt` is on the clock of `performance.now()`. */
interface NewRefusal {
  readonly units: number
  readonly askedAt: number
  readonly untilFreeMs: number
}

interface KnownRefusal {
  readonly units: number
  readonly freeAt: number
  readonly forgetAt: number
}

const REMEMBERED_MS = 1000
/** About 2 MB. */
const MOST_KEYS = 10_000
