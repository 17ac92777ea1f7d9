import { afterEach, expect, test } from 'vitest'
import { deadlineIn } from '../../src/cli/run/deadline.ts'
import { Guardian } from '../../src/cli/run/guardian.ts'
import { undisturbed } from '../base/measured.ts'

const started: Guardian[] = []
afterEach(() => {
  for (const guardian of started.splice(0)) guardian.dismiss()
})

async function ready(): Promise<Guardian> {
  const guardian = new Guardian()
  started.push(guardian)
  await guardian.ready()
  return guardian
}

const asleep = { file: 'sleep', args: ['60'], env: process.env, input: 'inherit' } as const

test('a signal that comes before the command is known to run reaches it all the same', async () => {
  const guardian = await ready()
  const ended = guardian.launch(asleep, { deadline: deadlineIn(60_000), graceMs: 0 })
  guardian.signal('SIGUSR1')
  expect(await ended).toEqual({ tag: 'signalled', signal: 'SIGUSR1' })
})

test('a loss that is noticed before the command is known to run kills it all the same', async () => {
  const guardian = await ready()
  const ended = guardian.launch(asleep, { deadline: deadlineIn(60_000), graceMs: 0 })
  guardian.kill()
  expect((await ended).tag).toMatch(/^(unguarded|signalled)$/)
  expect(guardian.ending).toBe(true)
})

test('a command whose deadline has passed on the way is not started', async () => {
  const guardian = await ready()
  const ended = guardian.launch(asleep, { deadline: deadlineIn(0), graceMs: 0 })
  expect(await ended).toEqual({ tag: 'too-late' })
})

test('a deadline that passes on the wall clock alone, as in a suspended machine, counts', async () => {
  const { tag, tookMs } = await undisturbed(
    (result) => result.tag !== 'too-late',
    async () => {
      const guardian = await ready()
      const startedAt = performance.now()
      const deadline = { ...deadlineIn(60_000), wallMs: Date.now() + 3000 }
      const ended = await guardian.launch(asleep, { deadline, graceMs: 0 })
      return { tag: ended.tag, tookMs: performance.now() - startedAt }
    },
  )
  expect(tag).toMatch(/^(unguarded|signalled)$/)
  expect(tookMs).toBeGreaterThan(2900)
  // The other clock would end the command after a minute.
  expect(tookMs).toBeLessThan(30_000)
})

test('dismissing the guardian of a command that still runs ends both', async () => {
  const guardian = await ready()
  const ended = guardian.launch(asleep, { deadline: deadlineIn(60_000), graceMs: 0 })
  guardian.dismiss()
  expect((await ended).tag).toBe('unguarded')
})
