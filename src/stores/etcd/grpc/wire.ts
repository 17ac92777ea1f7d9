/**
 * The part of Protocol Buffers that etcd's messages need (https://protobuf.dev/programming-guides/encoding/): numbers,
 * text, and messages inside messages. A field that is 0 or empty is left out, as the encoding has it.
 */

/** Writes one message. Back to front, so that the length of an inner message is known when its turn comes. */
export class MessageWriter {
  #bytes = Buffer.allocUnsafe(512)
  #start = 512

  /** What was written. The writer is empty afterwards. */
  take(): Buffer {
    const taken = this.#bytes.subarray(this.#start)
    this.#bytes = EMPTY
    this.#start = 0
    return taken
  }

  number(field: number, value: number): void {
    if (value === 0) return
    this.#varint(value)
    this.#varint(field * 8)
  }

  text(field: number, value: string): void {
    if (value === '') return
    const length = Buffer.byteLength(value)
    this.#reserve(length)
    this.#start -= length
    this.#bytes.write(value, this.#start, 'utf8')
    this.#varint(length)
    this.#varint(field * 8 + LENGTH_DELIMITED)
  }

  /** `body` writes the fields of the inner message. Also where it is empty: that it is there says something. */
  message(field: number, body: () => void): void {
    const end = this.#bytes.length - this.#start
    body()
    this.#varint(this.#bytes.length - this.#start - end)
    this.#varint(field * 8 + LENGTH_DELIMITED)
  }

  /** Each item is written by `body`, in the order of the list. */
  messages<T>(field: number, items: readonly T[], body: (item: T) => void): void {
    for (let index = items.length - 1; index >= 0; index -= 1)
      this.message(field, () => body(items[index] as T))
  }

  #varint(value: number): void {
    let length = 1
    for (let rest = value; rest >= 0x80; rest = Math.floor(rest / 0x80)) length += 1
    this.#reserve(length)
    this.#start -= length
    let at = this.#start
    let rest = value
    for (; rest >= 0x80; rest = Math.floor(rest / 0x80)) this.#bytes[at++] = (rest % 0x80) + 0x80
    this.#bytes[at] = rest
  }

  #reserve(length: number): void {
    if (this.#start >= length) return
    const written = this.#bytes.length - this.#start
    const larger = Buffer.allocUnsafe(Math.max(512, 2 * (written + length)))
    this.#bytes.copy(larger, larger.length - written, this.#start)
    this.#bytes = larger
    this.#start = larger.length - written
  }
}

/** Reads one message: `next()` names the field, then one of the others takes its value. */
export class MessageReader {
  readonly #bytes: Buffer
  #at = 0
  #type = 0

  constructor(bytes: Buffer) {
    this.#bytes = bytes
  }

  /** The number of the next field; 0 at the end. */
  next(): number {
    if (this.#at >= this.#bytes.length) return 0
    const tag = this.number()
    this.#type = tag & 7
    return tag >>> 3
  }

  /** Exact between -2^53 and 2^53. */
  number(): number {
    // In two parts, as a negative number has 64 bits.
    let low = 0
    let high = 0
    for (let shift = 0; shift < 70; shift += 7) {
      const byte = this.#bytes[this.#at++]
      if (byte === undefined) throw new Error('The message ends in the middle of a number.')
      const bits = byte & 0x7f
      if (shift < 32) low = (low | (bits << shift)) >>> 0
      if (shift === 28) high = bits >>> 4
      else if (shift > 28) high = (high | (bits << (shift - 32))) >>> 0
      if (byte < 0x80) return (high | 0) * 2 ** 32 + low
    }
    throw new Error('The message has a number that does not end.')
  }

  flag(): boolean {
    return this.number() !== 0
  }

  bytes(): Buffer {
    const length = this.number()
    const end = this.#at + length
    if (end > this.#bytes.length) throw new Error('The message is shorter than it says.')
    const value = this.#bytes.subarray(this.#at, end)
    this.#at = end
    return value
  }

  text(): string {
    return this.bytes().toString('utf8')
  }

  message(): MessageReader {
    return new MessageReader(this.bytes())
  }

  /** Passes over a field that is of no interest. */
  skip(): void {
    if (this.#type === 0) this.number()
    else if (this.#type === LENGTH_DELIMITED) this.bytes()
    else if (this.#type === 1) this.#at += 8
    else if (this.#type === 5) this.#at += 4
    else throw new Error(`The message has a field of a kind that is none: ${this.#type}.`)
  }
}

const LENGTH_DELIMITED = 2
const EMPTY = Buffer.alloc(0)
