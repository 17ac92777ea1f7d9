import { show } from '../base/duration.ts'
import { messageOf } from '../base/thrown.ts'
import { InvalidArgumentError, isHoldfastError } from '../errors.ts'

/** What a job keeps as JSON. */
export type Kept = 'payload' | 'progress' | 'result'

/** A value as JSON. Refuses what would silently read back as something else. */
export function jsonText(kept: Kept, value: unknown, { maxBytes }: { readonly maxBytes: number }): string {
  const text = stringify(kept, value)
  // A character is one to three bytes, so only a text near the limit has to be encoded.
  const bytes = text.length > maxBytes ? text.length : text.length * 3 > maxBytes ? byteLength(text) : 0
  if (bytes <= maxBytes) return text
  throw new InvalidArgumentError(
    `Expected \`${kept}\` to be at most ${maxBytes} bytes of JSON${LIMIT[kept]}, got ${bytes}. ${kept === 'payload' ? 'Store what is large elsewhere, and enqueue its name.' : 'Store what is large elsewhere, and keep its name here.'}`,
  )
}

const LIMIT: Readonly<Record<Kept, string>> = {
  payload: ' (`maxPayloadBytes`)',
  progress: '',
  result: ' (`maxPayloadBytes`)',
}

function stringify(kept: Kept, value: unknown): string {
  if (value === undefined) return 'null'
  try {
    const text = JSON.stringify(value, refusing(kept)) as string | undefined
    if (text !== undefined) return text
  } catch (error) {
    if (isHoldfastError(error, 'invalid-argument')) throw error
    // A cycle, or a `toJSON` that throws.
    const reason = messageOf(error).split('\n')[0]
    throw new InvalidArgumentError(`Expected \`${kept}\` to be JSON, got ${show(value)}: ${reason}.`, {
      cause: error,
    })
  }
  throw new InvalidArgumentError(
    `Expected \`${kept}\` to be JSON, got ${show(value)}, whose \`toJSON\` gives nothing.`,
  )
}

/** A replacer that refuses a value that would become null or `{}`, or would be left out of an array. Its message says where. */
function refusing(kept: Kept): (this: unknown, name: string, value: unknown) => unknown {
  // The path from the outermost to the current value: JSON.stringify goes depth first.
  const holders: unknown[] = []
  const names: string[] = []
  return function (name, value) {
    while (holders.length > 0 && holders.at(-1) !== this) {
      holders.pop()
      names.pop()
    }
    const given = (this as Record<string, unknown>)[name]
    if (isLost(value, this) || (value === null && given instanceof Date)) {
      const where = `${kept}${[...names, Array.isArray(this) ? `[${name}]` : name && `.${name}`].join('')}`
      throw new InvalidArgumentError(
        `Expected \`${where}\` to be a value that JSON has, got ${given instanceof Date ? 'an invalid Date' : show(value)}.`,
      )
    }
    if (typeof value === 'object' && value !== null) {
      names.push(Array.isArray(this) ? `[${name}]` : name && `.${name}`)
      holders.push(value)
    }
    return value
  }
}

function isLost(value: unknown, holder: unknown): boolean {
  switch (typeof value) {
    case 'bigint':
    case 'function':
    case 'symbol':
      return true
    case 'number':
      return !Number.isFinite(value)
    case 'undefined':
      return Array.isArray(holder)
    case 'object':
      // A Map, a Set, an Error, a Promise, a RegExp: `{}`, whatever was in it.
      return !Array.isArray(value) && value !== null && tagOf(value) !== '[object Object]'
    default:
      return false
  }
}

function tagOf(value: object): string {
  return Object.prototype.toString.call(value)
}

function byteLength(text: string): number {
  return new TextEncoder().encode(text).length
}
