/** In front of each message: a byte that says it is not compressed, and four with its length. */
export const FRAME_BYTES = 5

/** Puts the messages of a stream together again. Chunks are joined once for each message, however many it comes in. */
export class FrameReader {
  readonly #onMessage: (message: Buffer) => void
  #chunks: Buffer[] = []
  #length = 0
  /** How many bytes are worth a look. */
  #needed = FRAME_BYTES

  constructor(onMessage: (message: Buffer) => void) {
    this.#onMessage = onMessage
  }

  push(chunk: Buffer): void {
    this.#chunks.push(chunk)
    this.#length += chunk.length
    if (this.#length < this.#needed) return
    let bytes = this.#chunks.length === 1 ? chunk : Buffer.concat(this.#chunks)
    for (;;) {
      this.#needed = bytes.length < FRAME_BYTES ? FRAME_BYTES : FRAME_BYTES + bytes.readUInt32BE(1)
      if (bytes.length < this.#needed) break
      this.#onMessage(bytes.subarray(FRAME_BYTES, this.#needed))
      bytes = bytes.subarray(this.#needed)
    }
    this.#chunks = bytes.length === 0 ? [] : [bytes]
    this.#length = bytes.length
  }
}
