import { expect, test } from 'vitest'
import { murmur3 } from '../../src/partition/murmur3.ts'

// Published test vectors of MurmurHash3_x86_32 with seed 0, and texts of each length modulo 4.
test.each([
  ['', 0],
  ['a', 0x3c2569b2],
  ['!', 0x72661cf4],
  ['!C', 0xa0f7b07a],
  ['!Ce', 0x7e4a8634],
  ['\0\0\0\0', 0x2362f9de],
  ['test', 0xba6bd213],
  ['hello', 0x248bfa47],
  ['Hello, world!', 0xc0363e43],
  ['hello, world', 0x149bbb7f],
  ['The quick brown fox jumps over the lazy dog', 0x2e4ff723],
])('%j has the hash that every other implementation gives it', (text, hash) => {
  expect(murmur3(text)).toBe(hash)
})

test('spreads ids that differ in their last digits evenly', () => {
  const counts = new Array<number>(64).fill(0)
  for (let id = 0; id < 64_000; id += 1) {
    const at = murmur3(`customer:${id}`) % 64
    counts[at] = (counts[at] ?? 0) + 1
  }
  // The standard deviation of 1,000 is about 31.
  expect(Math.min(...counts)).toBeGreaterThan(850)
  expect(Math.max(...counts)).toBeLessThan(1150)
})
