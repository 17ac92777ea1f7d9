/**
 * For states that cannot be: a mistake of this library, and never of its caller or of a store. It throws where the mistake is
 * noticed, because a silent return would only move the fault away from its cause.
 *
 * @param impossible the state that was found, as a clause: `the work is ended without a reason`.
 */
export function assert(condition: unknown, impossible: string): asserts condition {
  if (condition) return
  throw new Error(`This cannot be, and is a mistake of holdfast: ${impossible}.`)
}
