import { median } from '../bench/scenario.ts'

/** What a soak says of one series of numbers. */
export interface Verdict {
  readonly median: number
  /** From the begin to the end of the judged time, by the slope. */
  readonly growth: number
  /** Whether there are two samples after the warm-up, and one of them is not 0. Nothing else can be judged. */
  readonly isSeen: boolean
  /** Whether it was seen, and does not grow. */
  readonly isLevel: boolean
}

export interface Tolerance {
  /** A growth up to this share of the median is none. */
  readonly share: number
  /** A growth up to this number is none, whatever the share. */
  readonly amount: number
}

/**
 * Whether a series is level. The first quarter is the warm-up and does not count.
 *
 * The slope is the median of the slopes between all pairs of points (Theil, 1950; Sen, 1968): a few outliers, such as a
 * garbage collection of the server, do not move it.
 */
export function judge(
  points: readonly (readonly [at: number, value: number])[],
  tolerance: Tolerance,
): Verdict {
  const judged = points.slice(Math.floor(points.length / 4))
  if (judged.length < 2) return { median: judged[0]?.[1] ?? 0, growth: 0, isSeen: false, isLevel: false }
  const slopes = judged.flatMap(([at, value], index) =>
    judged.slice(index + 1).map(([laterAt, laterValue]) => (laterValue - value) / (laterAt - at)),
  )
  const span = (judged.at(-1)?.[0] ?? 0) - (judged[0]?.[0] ?? 0)
  const middle = median(judged.map(([, value]) => value))
  const growth = median(slopes) * span
  const isSeen = judged.some(([, value]) => value > 0)
  const isLevel = isSeen && growth <= Math.max(tolerance.amount, tolerance.share * middle)
  return { median: middle, growth, isSeen, isLevel }
}
