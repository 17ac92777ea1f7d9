import fc from 'fast-check'
import { expect } from 'vitest'
import { isHoldfastError } from '../../src/index.ts'

/**
 * The settings of a property. `HOLDFAST_FUZZ=100` makes a hundred times as many runs. A failure prints its seed and path, and
 * `HOLDFAST_SEED=…` begins with that seed.
 */
export function runs(count: number): fc.Parameters<unknown> {
  const { HOLDFAST_FUZZ: factor, HOLDFAST_SEED: seed } = process.env
  return {
    numRuns: Math.ceil(count * Number(factor ?? 1)),
    ...(seed === undefined ? {} : { seed: Number(seed) }),
    // A smaller example of a hostile server costs its time again and again.
    interruptAfterTimeLimit: 150_000 * Number(factor ?? 1),
    markInterruptAsFailure: true,
  }
}

/** Texts that mean something to Lua, SQL, HTML, a shell, a terminal, a URL, a glob or a log, alone and in a crowd. */
export const hostileText: fc.Arbitrary<string> = fc
  .oneof(
    fc.constantFrom(
      ...["'; drop table rooms; --", "'); select pg_sleep(60); --", '$1', '$(exit)', '%s%n', '\\', '"'],
      ...[
        "']]; redis.call('FLUSHALL') --",
        ']=] return 1 --',
        '{',
        '}',
        '{}',
        '{a}{b}',
        '*',
        '[a-z]*',
        '\\*',
      ],
      ...['<script>alert(1)</script>', '"><img src=x onerror=alert(1)>', '</title>', '&amp;', 'javascript:0'],
      ...[
        '\x1b[2J',
        '\x1b]0;title\x07',
        '\x9b2J',
        '\r\n',
        '\n',
        '\0',
        '\u202e',
        '\u2028',
        '\ufeff',
        '\ud800',
        '\udc00',
      ],
      ...[
        '__proto__',
        'constructor',
        'toString',
        'holdfast:fence',
        '../../etc/passwd',
        '%00',
        '%',
        '?',
        '#',
        '@',
        '/',
      ],
    ),
    fc.string({ unit: 'binary', maxLength: 40 }),
    fc.string({ unit: 'grapheme', maxLength: 40 }),
    fc.integer({ min: 1, max: 2000 }).map((length) => 'x\x1b[2J'.repeat(length)),
  )
  .chain((text) => fc.constantFrom(text, `a${text}`, text + text, `${text}\n${text}`))

/** Without the halves of characters, which have no bytes. */
export function wellFormed(text: string): string {
  return text.replace(/\p{Cs}/gu, '?')
}

/** Any value. */
export const anything: fc.Arbitrary<unknown> = fc.oneof(
  fc.anything({
    withBigInt: true,
    withDate: true,
    withMap: true,
    withNullPrototype: true,
    withSet: true,
    withTypedArray: true,
    withObjectString: true,
    maxDepth: 2,
  }),
  hostileText,
  fc.constantFrom(Symbol('x'), () => 1),
  fc.double(),
)

/** The work has to succeed, or to fail with an error of ours that a person can read. Resolves with its outcome. */
export async function soundly<T>(work: () => T | Promise<T>): Promise<T | undefined> {
  try {
    return await work()
  } catch (error) {
    expectSound(error)
    return undefined
  }
}

/** One short line of an error class of ours, which steers no terminal and forges no line of a log. */
export function expectSound(error: unknown): void {
  if (!isHoldfastError(error)) throw new Error('Expected an error of holdfast', { cause: error })
  expect(error.message.length, error.message.slice(0, 300)).toBeLessThan(2500)
  expect(error.message).not.toMatch(/[\p{Cc}\u2028\u2029\u202a-\u202e\u2066-\u2069]/u)
}
