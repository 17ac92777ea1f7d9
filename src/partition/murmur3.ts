/**
 * MurmurHash3, x86, 32 bits, seed 0, of the text in UTF-8 (Appleby, github.com/aappleby/smhasher, public domain). Libraries
 * of most languages have it, so a program in another language finds the same partition.
 */
export function murmur3(text: string): number {
  const bytes = new TextEncoder().encode(text)
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const wholeBlocks = bytes.length - (bytes.length % 4)
  let hash = 0
  for (let at = 0; at < wholeBlocks; at += 4) {
    hash ^= scrambled(view.getUint32(at, true))
    hash = (Math.imul(rotated(hash, 13), 5) + 0xe6546b64) | 0
  }
  let rest = 0
  for (let at = bytes.length - 1; at >= wholeBlocks; at -= 1) rest = (rest << 8) | view.getUint8(at)
  if (wholeBlocks < bytes.length) hash ^= scrambled(rest)
  hash ^= bytes.length
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b)
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35)
  return (hash ^ (hash >>> 16)) >>> 0
}

function scrambled(block: number): number {
  return Math.imul(rotated(Math.imul(block, 0xcc9e2d51), 15), 0x1b873593)
}

function rotated(value: number, bits: number): number {
  return (value << bits) | (value >>> (32 - bits))
}
