import { StoreError } from '../../errors.ts'
import { AnswerReader } from '../answers.ts'

/** A clock that was once set beyond the year 2286 leaves fences of 17 digits behind, and they never fall again. */
const BIGINT_DIGITS = 19

export const answers: AnswerReader = new AnswerReader(unexpectedAnswer, {
  fenceDigits: BIGINT_DIGITS,
  tellsTime: true,
})

/** Reads a part of an answer. Whatever goes wrong in it, the answer makes no sense. */
export function readAnswer<T>(line: string, read: (line: string) => T): T {
  try {
    return read(line)
  } catch {
    throw unexpectedAnswer(line)
  }
}

export function isUnexpectedAnswer(error: unknown): boolean {
  return error instanceof StoreError && error.message === UNEXPECTED
}

function unexpectedAnswer(line: string): StoreError {
  const got = JSON.stringify(`${line}`.slice(0, 100))
  const cause = new TypeError(`Expected what a function of the store answers, got ${got}`)
  return new StoreError('store-refused', UNEXPECTED, { cause })
}

const UNEXPECTED =
  'A function in the PostgreSQL schema gave an answer that makes no sense. Check that nobody has changed the functions of Holdfast.'
