import { show } from '../base/duration.ts'
import { InvalidArgumentError } from '../errors.ts'

/** A payload as JSON, refused where reading it back would give something else in silence. */
export function payloadText(payload: unknown, { maxBytes }: { readonly maxBytes: number }): string {
  const text = stringify(payload)
  // A character is a byte at least, so the long way is only for what is near the limit.
  const bytes = text.length > maxBytes ? text.length : text.length * 3 > maxBytes ? byteLength(text) : 0
  if (bytes <= maxBytes) return text
  throw new InvalidArgumentError(
    `Expected \`payload\` to be at most ${maxBytes} bytes of JSON (\`maxPayloadBytes\`), got ${bytes}. Store what is large elsewhere, and enqueue its name.`,
  )
}

function stringify(payload: unknown): string {
  if (payload === undefined) return 'null'
  try {
    const text = JSON.stringify(payload, refuseWhatJsonLoses) as string | undefined
    if (text !== undefined) return text
  } catch (error) {
    if (error instanceof InvalidArgumentError) throw error
    // A cycle, or a `toJSON` that throws.
    const reason = error instanceof Error ? (error.message.split('\n')[0] ?? '') : String(error)
    throw new InvalidArgumentError(`Expected \`payload\` to be JSON, got ${show(payload)}: ${reason}.`, {
      cause: error,
    })
  }
  throw new InvalidArgumentError(
    `Expected \`payload\` to be JSON, got ${show(payload)}, whose \`toJSON\` gives nothing.`,
  )
}

function refuseWhatJsonLoses(name: string, value: unknown): unknown {
  const isLost =
    typeof value === 'bigint' ||
    typeof value === 'function' ||
    typeof value === 'symbol' ||
    (typeof value === 'number' && !Number.isFinite(value)) ||
    value instanceof Map ||
    value instanceof Set
  if (!isLost) return value
  const where = name === '' ? 'payload' : `payload…${name}`
  throw new InvalidArgumentError(`Expected \`${where}\` to be a value that JSON has, got ${show(value)}.`)
}

function byteLength(text: string): number {
  return new TextEncoder().encode(text).length
}
