/** The result of one check of `holdfast doctor`. */
export interface Finding {
  /** The subject of the check, in a word or two: `eviction`. */
  readonly check: string
  /** Which of several servers, as `host:port`; undefined where there is but one. */
  readonly where?: string | undefined
  /** `problem`: locks do not work, or may break. `warning`: they work, and somebody should know. */
  readonly verdict: 'ok' | 'warning' | 'problem'
  /** The state, and how to change it if it is not ok. Holds no secrets. */
  readonly text: string
}

/**
 * The finding about the one server of a URL that was not looked at. It is no problem, as the store works: if it cannot be opened,
 * the finding `connection` says so and this one is left out.
 */
export function unseenServer(because: string): Finding {
  return {
    check: 'server',
    verdict: 'warning',
    text: `The doctor could not look at the server, so more may be wrong than is said here. ${because}`,
  }
}

export function isUnseenServer({ check }: Finding): boolean {
  return check === 'server'
}

export interface ClockReading {
  /** The median. */
  readonly roundTripMs: number
  /** How far the clock that was asked is ahead of ours; negative: behind. */
  readonly aheadMs: number
  /** By how much that may be wrong. */
  readonly errorMs: number
}

/** Reads another clock some times. The answer was given at the middle of its round trip, or at most half of one beside it. */
export async function readClock(ask: () => Promise<number>): Promise<ClockReading> {
  const readings: { readonly roundTripMs: number; readonly aheadMs: number }[] = []
  for (let round = 0; round < READINGS; round += 1) {
    const sentAt = Date.now()
    const begun = performance.now()
    const theirs = await ask()
    const roundTripMs = performance.now() - begun
    readings.push({ roundTripMs, aheadMs: theirs - (sentAt + roundTripMs / 2) })
  }
  readings.sort((one, other) => one.roundTripMs - other.roundTripMs)
  const [quickest] = readings as [(typeof readings)[number]]
  const middle = readings[Math.floor(READINGS / 2)] ?? quickest
  return {
    roundTripMs: middle.roundTripMs,
    aheadMs: quickest.aheadMs,
    // Date.now() has no parts of a millisecond.
    errorMs: quickest.roundTripMs / 2 + 1,
  }
}

const READINGS = 9

/** The finding about the clock of a server that fences count from. */
export function clockFinding({ aheadMs, errorMs }: ClockReading): Finding {
  const check = 'clock'
  const apartMs = Math.abs(aheadMs)
  if (apartMs < FAR_MS) {
    return { check, verdict: 'ok', text: `Within ${milliseconds(apartMs + errorMs)} of this machine's.` }
  }
  return {
    check,
    verdict: 'warning',
    text: `${milliseconds(apartMs)} ${aheadMs > 0 ? 'ahead of' : 'behind'} this machine's. Leases do not mind, but fences count from it, so they may fall when the locks move to another server. Let NTP set both.`,
  }
}

const FAR_MS = 1000

/** A duration for people: 0.24 ms, 3.1 ms, 250 ms, 3.2 s, 70 min. */
export function milliseconds(durationMs: number): string {
  const size = Math.abs(durationMs)
  if (size < 1) return `${durationMs.toFixed(2)} ms`
  if (size < 10) return `${durationMs.toFixed(1)} ms`
  if (size < 1000) return `${Math.round(durationMs)} ms`
  return size < 120_000 ? `${(durationMs / 1000).toFixed(1)} s` : `${Math.round(durationMs / 60_000)} min`
}
