import type { HeaderValue, RecordedAnswer } from './answer-recorder.ts'

/** The answer to the first request with a key, as the store keeps it. */
export interface KeptAnswer {
  /** The fingerprint of the request. */
  readonly request: string
  readonly status: number
  readonly headers: Readonly<Record<string, HeaderValue>>
  /** `null`: the answer was too long, or it broke off. */
  readonly body: { readonly text: string } | { readonly deflated: string } | null
}

/** In characters of JSON: what `once` keeps. */
const LONGEST_KEPT = 8000

/** As text where it is text and fits, else compressed. */
export async function keptAnswer(request: string, answer: RecordedAnswer): Promise<KeptAnswer> {
  const { status, headers, body } = answer
  const notKept: KeptAnswer = { request, status, headers: {}, body: null }
  if (typeof body === 'string') return notKept
  const text = textOf(body)
  if (text !== undefined) {
    const asText = { request, status, headers, body: { text } }
    if (fits(asText)) return asText
  }
  const deflated = Buffer.from(await through(body, new CompressionStream('deflate-raw'))).toString('base64')
  const compressed = { request, status, headers, body: { deflated } }
  return fits(compressed) ? compressed : notKept
}

export async function bodyOf(body: NonNullable<KeptAnswer['body']>): Promise<Buffer> {
  if ('text' in body) return Buffer.from(body.text)
  return Buffer.from(
    await through(Buffer.from(body.deflated, 'base64'), new DecompressionStream('deflate-raw')),
  )
}

function fits(answer: KeptAnswer): boolean {
  return JSON.stringify(answer).length <= LONGEST_KEPT
}

/** `undefined`: these bytes would not come back from a text. */
function textOf(body: Buffer): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(body)
  } catch {
    return undefined
  }
}

function through(body: Buffer, stream: CompressionStream | DecompressionStream): Promise<ArrayBuffer> {
  return new Response(new Blob([body]).stream().pipeThrough(stream)).arrayBuffer()
}
