import { expect, onTestFinished, test, vi } from 'vitest'
import { ClosedError, StoreError } from '../../src/errors.ts'
import { warnOfError } from '../../src/partition/failure-warnings.ts'

test('of failures that are alike one in ten seconds is told, and the next one says how many were not', async () => {
  vi.useFakeTimers({ toFake: ['performance'] })
  onTestFinished(() => void vi.useRealTimers())
  const heard: string[] = []
  const hear = ({ message }: Error): unknown => heard.push(message)
  process.on('warning', hear)
  onTestFinished(() => void process.off('warning', hear))
  const tell = warnOfError('fleet')
  const away = (key: number) =>
    tell(new StoreError('store-unavailable', `No answer about ${key}.`), { key, during: 'acquire' })

  for (let key = 0; key < 1000; key += 1) away(key)
  tell(new Error('no disk'), { key: 'a', during: 'start' })
  tell(new Error('no memory'), { key: 'b', during: 'start' })
  tell(new Error('no disk'), { key: 'c', during: 'start' })
  tell(new ClosedError('The locks are closed.'), { key: 'd', during: 'hold' })
  tell(new ClosedError('The queue is stopped.'), { key: 'e', during: 'work' })
  vi.advanceTimersByTime(10_000)
  away(7)
  // A warning is told in the next tick.
  await new Promise((resolve) => setImmediate(resolve))
  expect(heard).toEqual([
    'The partition "fleet", key 0 could not be asked for. It goes on by itself. See `onError`.',
    'The partition "fleet", key "a" could not start its work. See `onError`.',
    'The partition "fleet", key "b" could not start its work. See `onError`.',
    'The partition "fleet", key "d" was lost. It is stopped. See `onError`.',
    'The partition "fleet", key "e" was told that its work failed. See `onError`.',
    'The partition "fleet", key 7 could not be asked for. It goes on by itself. Not told: 999 more like it. See `onError`.',
  ])
})
