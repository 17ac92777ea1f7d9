import { StoreError } from '../../errors.ts'
import { type AnswerReader, answerReader } from '../answers.ts'

export const answers: AnswerReader = answerReader(unexpectedAnswer)

function unexpectedAnswer(line: string): StoreError {
  const got = JSON.stringify(line.slice(0, 100))
  const cause = new TypeError(`Expected what a function of the store answers, got ${got}`)
  return new StoreError('store-refused', UNEXPECTED, { cause })
}

const UNEXPECTED =
  'A function in the PostgreSQL schema gave an answer that makes no sense. Check that nobody has changed the functions of Holdfast.'
