/** How many slots a Redis Cluster divides its keys among. */
export const SLOTS = 16_384

/**
 * The slot of a Redis key, as the servers compute it. It depends on the text between the first `{` and the next `}`. If
 * there is no such text, it depends on the whole name.
 */
export function slotOf(name: string): number {
  const open = name.indexOf('{')
  const close = open === -1 ? -1 : name.indexOf('}', open + 1)
  const tag = close > open + 1 ? name.slice(open + 1, close) : name
  return crc16(tag) % SLOTS
}

/** CRC-16/XMODEM of the text in UTF-8. */
function crc16(text: string): number {
  let crc = 0
  for (const byte of Buffer.from(text)) crc = ((crc << 8) ^ (TABLE[(crc >> 8) ^ byte] ?? 0)) & 0xffff
  return crc
}

const TABLE: Uint16Array = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8
  for (let bit = 0; bit < 8; bit += 1) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1
  return crc & 0xffff
})

/**
 * Texts that bring a name into a given slot when they stand between braces. They are found by trying one number after
 * the other, as far as they are needed. The first takes a few milliseconds, and all of them take a tenth of a second.
 */
export class SlotTags {
  readonly #name: (tag: string) => string
  readonly #found = new Map<number, string>()
  #tried = 0

  /** `name`: what will be named with a tag. */
  constructor(name: (tag: string) => string) {
    this.#name = name
  }

  tagOf(slot: number): string {
    for (;;) {
      const found = this.#found.get(slot)
      if (found !== undefined) return found
      const tag = this.#tried.toString(36)
      this.#tried += 1
      const reached = slotOf(this.#name(tag))
      if (!this.#found.has(reached)) this.#found.set(reached, tag)
    }
  }
}
