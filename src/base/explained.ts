import { shortened } from './text.ts'
import { fieldOf, messageOf } from './thrown.ts'

/** What an error says, and what its causes add to that, on one line. */
export function explained(error: unknown): string {
  const said = [messageOf(error)]
  let cause = causeOf(error)
  for (let depth = 0; depth < DEEPEST && cause !== undefined; depth += 1) {
    const text = firstLineOf(messageOf(cause))
    if (!said.some((known) => known.includes(text))) said.push(text)
    cause = causeOf(cause)
  }
  const [message = '', ...causes] = said
  return causes.length === 0 ? message : `${message} Cause: ${causes.join(': ')}`
}

/** Without its full stop, because the next cause may follow. Node.js puts the list of modules that required a missing one below. */
function firstLineOf(text: string): string {
  return shortened(text.replace(/\n[\s\S]*$/, ''), LONGEST_CAUSE).replace(/\.$/, '')
}

/** Of several attempts, as a host with two addresses has them, the first one has to do. */
function causeOf(error: unknown): unknown {
  const errors = fieldOf(error, 'errors')
  return fieldOf(error, 'cause') ?? (Array.isArray(errors) ? errors[0] : undefined)
}

/** The words of a server may be of any length. */
const LONGEST_CAUSE = 300
/** A circle of causes ends, too. */
const DEEPEST = 5
