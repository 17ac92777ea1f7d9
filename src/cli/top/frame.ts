/** Lines that fill the screen. */
export interface Frame {
  readonly lines: readonly string[]
  /** The first line on the screen. It may differ from the view's `top`. */
  readonly top: number
  /** How many lines of the list or page fit. */
  readonly pageSize: number
  /** Where the list or page begins. */
  readonly above: number
}

/** The list or page, without what stands above and below. */
export type FrameBody = Omit<Frame, 'above'>

/** What became of the last action. */
export interface ActionNotice {
  readonly text: string
  readonly isBad: boolean
}

/** A header, the list or page, and at the bottom a line for hints and questions. A small screen keeps the list and drops the others. */
export function framed({
  header,
  body,
  bottom,
  rows,
}: {
  readonly header: readonly string[]
  readonly body: (space: number) => FrameBody
  readonly bottom: () => string
  /** How many lines the screen has. */
  readonly rows: number
}): Frame {
  const above = rows >= 9 ? [...header, ''] : rows >= 5 ? header.slice(0, 1) : []
  const below = rows >= LEAST_ROWS_TO_ASK ? [bottom()] : []
  const space = Math.max(0, rows - above.length - below.length)
  const { lines, top, pageSize } = body(space)
  const blank = Array.from({ length: space - lines.length }, () => '')
  return { lines: [...above, ...lines, ...blank, ...below], top, pageSize, above: above.length }
}

/** A smaller screen has no line for hints and questions. */
export const LEAST_ROWS_TO_ASK = 4
