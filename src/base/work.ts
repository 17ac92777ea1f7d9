/**
 * The end of a call that runs `work`: the work alone, or options and the work. The work always comes last, so that a long
 * function does not hide the options behind it.
 *
 * @inline
 */
export type WorkArguments<Options, Work> =
  | readonly [work: Work]
  | readonly [options: Options | undefined, work: Work]

/** The options, which may be left out, and the work. Whether that is a function, the caller checks. */
export function splitWork<Options, Work>(
  given: WorkArguments<Options, Work>,
): readonly [options: Options | undefined, work: Work] {
  return given.length === 1 ? [undefined, given[0]] : given
}
