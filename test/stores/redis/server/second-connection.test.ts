import { describe, expect, test, vi } from 'vitest'
import { SecondConnection } from '../../../../src/stores/redis/server/second-connection.ts'

describe('a second connection', () => {
  test('answers once two replies have come: by then the server has read what was sent on the first one', async () => {
    const { second, onAnswers, reply } = tried()
    await reply.next('1')
    expect(onAnswers).not.toHaveBeenCalled()
    await reply.next('1')
    expect(onAnswers).toHaveBeenCalledOnce()
    expect(second.isOpen).toBe(false)
  })

  test('answers also to a user that may run no script', async () => {
    const { onAnswers, reply } = tried()
    await reply.next(new Error("NOPERM this user has no permissions to run the 'eval' command"))
    await reply.next(new Error("NOPERM this user has no permissions to run the 'eval' command"))
    expect(onAnswers).toHaveBeenCalledOnce()
  })

  test.each([
    'WRONGPASS invalid username-password pair',
    'ERR max number of clients reached',
    'LOADING Redis is loading the dataset in memory',
    'connect ECONNREFUSED',
  ])('does not answer with %s, and is closed', async (words) => {
    const { second, onAnswers, reply, close } = tried()
    await reply.next(new Error(words))
    expect(onAnswers).not.toHaveBeenCalled()
    expect(second.isOpen).toBe(false)
    expect(close).toHaveBeenCalledOnce()
  })

  test('stays open if it is taken', async () => {
    const { second, reply, close } = tried(() => second.take())
    await reply.next('1')
    await reply.next('1')
    expect(close).not.toHaveBeenCalled()
  })
})

/** A second connection that was tried just now, and whose replies the test gives. */
function tried(onTaken: () => unknown = () => {}) {
  const settles: ((outcome: unknown) => void)[] = []
  const close = vi.fn()
  const second = new SecondConnection(() => ({
    send: () =>
      new Promise((resolve, reject) => {
        settles.push((outcome) => (outcome instanceof Error ? reject(outcome) : resolve(outcome)))
      }),
    reasonOf: (error) => error,
    close,
  }))
  const onAnswers = vi.fn(onTaken)
  second.try(onAnswers)
  const reply = {
    async next(outcome: unknown): Promise<void> {
      settles.shift()?.(outcome)
      await new Promise(setImmediate)
    },
  }
  return { second, onAnswers, reply, close }
}
