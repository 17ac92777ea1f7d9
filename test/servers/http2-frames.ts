/**
 * Tells which bytes of one direction of an HTTP/2 connection belong to which stream (RFC 9113, section 4.1: nine bytes precede
 * each frame: its length, its type, flags and its stream).
 */
export class Http2Frames {
  #header = Buffer.alloc(0)
  /** The bytes of the present frame, or of the client's preface, that are still to come. */
  #rest: number
  #frame: Frame = { type: -1, stream: 0 }

  constructor({ from }: { readonly from: 'client' | 'server' }) {
    this.#rest = from === 'client' ? PREFACE.length : 0
  }

  /** The parts of the frames in these bytes, in order. The bytes follow those of the last call. */
  read(bytes: Buffer): readonly FramePart[] {
    const parts: FramePart[] = []
    let at = 0
    while (at < bytes.length) {
      if (this.#rest > 0) {
        const end = Math.min(bytes.length, at + this.#rest)
        parts.push({ ...this.#frame, start: at, end })
        this.#rest -= end - at
        at = end
        continue
      }
      const end = Math.min(bytes.length, at + HEADER_BYTES - this.#header.length)
      this.#header = Buffer.concat([this.#header, bytes.subarray(at, end)])
      at = end
      if (this.#header.length < HEADER_BYTES) break
      this.#rest = this.#header.readUIntBE(0, 3)
      this.#frame = { type: this.#header.readUInt8(3), stream: this.#header.readUInt32BE(5) & 0x7fffffff }
      this.#header = Buffer.alloc(0)
    }
    return parts
  }
}

/** What a client of HTTP/2 sends first. */
export const PREFACE = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
/** The type of a frame that answers a request: DATA or HEADERS. A window update of the stream is no answer. */
export const isAnswer = ({ type }: Frame) => type === 0 || type === 1

const HEADER_BYTES = 9

interface Frame {
  readonly type: number
  readonly stream: number
}

/** Where the payload of a frame, or a part of it, stands in the bytes. */
export interface FramePart extends Frame {
  readonly start: number
  readonly end: number
}
