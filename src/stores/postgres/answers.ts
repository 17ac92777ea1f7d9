import type { AcquireAnswer, Gone, ReleaseAnswer, RenewAnswer } from '../../contract/store.ts'

// One line for each ticket, as described at the top of each statement.

export function acquireAnswer(text: string): AcquireAnswer {
  switch (text[0]) {
    case 'h':
      return held(text)
    case 'q': {
      const [ahead = '', askAgain = ''] = text.slice(1).split(' ')
      return { tag: 'queued', ahead: Number(ahead), askAgainMs: Number(askAgain) }
    }
    case 'b':
      return { tag: 'busy', retryMs: Number(text.slice(1)) }
    default:
      return gone(text)
  }
}

export function renewAnswer(text: string): RenewAnswer {
  switch (text[0]) {
    case 'h':
      return held(text)
    case 'q':
      return { tag: 'queued', askAgainMs: Number(text.slice(1)) }
    default:
      return gone(text)
  }
}

export function releaseAnswer(text: string): ReleaseAnswer {
  switch (text) {
    case 'h':
      return { was: 'held' }
    case 'q':
      return { was: 'queued' }
    case 'u':
      return { was: 'unknown' }
    default:
      return unexpected(text)
  }
}

function held(text: string): { readonly tag: 'held'; readonly fence: bigint } {
  return { tag: 'held', fence: BigInt(text.slice(1)) }
}

function gone(text: string): Gone {
  if (text === 'g') return { tag: 'gone', evicted: false }
  if (text[0] === 'e') return { tag: 'gone', evicted: true, reason: JSON.parse(text.slice(1)) as string }
  return unexpected(text)
}

function unexpected(text: string): never {
  throw new TypeError(`Expected an answer of a function of the store, got ${JSON.stringify(text)}`)
}
