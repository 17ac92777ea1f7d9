import { show } from './duration.ts'

/**
 * Reads thrown values. Anything can be thrown: an object without a text, an Error whose `stack` is no string, a Proxy
 * that throws at every question. The code that catches such a value must not throw because of it, so nothing here does.
 */

/** The message of a thrown value, of up to 4,000 characters. Never throws. */
export function messageOf(thrown: unknown): string {
  return textOf(thrown, ['message'])
}

/** For logs: the stack of a thrown value where it has one, else its message; up to 4,000 characters. Never throws. */
export function reportOf(thrown: unknown): string {
  return textOf(thrown, ['stack', 'message'])
}

/** A property of a thrown value; undefined where it has none, or does not let itself be asked. Never throws. */
export function fieldOf(thrown: unknown, name: string): unknown {
  if (typeof thrown !== 'object' || thrown === null) return undefined
  try {
    return (thrown as Readonly<Record<string, unknown>>)[name]
  } catch {
    // Its getter threw, or it is a Proxy that was revoked.
    return undefined
  }
}

function textOf(thrown: unknown, fields: readonly string[]): string {
  for (const name of fields) {
    const text = fieldOf(thrown, name)
    if (typeof text === 'string' && text !== '') return shortened(text)
  }
  if (typeof thrown === 'string' && thrown !== '') return shortened(thrown)
  return shortened(ownText(thrown) ?? show(thrown))
}

/** The text of an object's `toString`, if it is more than `[object Object]`. */
function ownText(thrown: unknown): string | undefined {
  if (typeof thrown !== 'object' || thrown === null) return undefined
  try {
    const text = String(thrown)
    return /^(?:\[object \w+\])?$/.test(text) ? undefined : text
  } catch {
    return undefined
  }
}

function shortened(text: string): string {
  return text.length > MOST_TEXT ? `${text.slice(0, MOST_TEXT - 1)}…` : text
}

/** Nothing longer was written for people, and the text is kept in databases and logs. */
const MOST_TEXT = 4000
