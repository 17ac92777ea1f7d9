import { afterAll, beforeAll, expect, test } from 'vitest'
import { createJobSchedules, type JobSchedules } from '../../../src/jobs/schedules/index.ts'
import { closeSharedServer, sharedServer } from '../scene.ts'
import { openSchedules } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

const JOB = { job: 'j', every: '1h' }

test.each<[string, object, string]>([
  [
    'no times',
    { job: 'j' },
    'Expected `cron` to be given alone, or else `every` or `afterEnd`, got undefined.',
  ],
  ['two kinds of times', { ...JOB, cron: '@daily' }, 'Expected `cron` to be given alone'],
  ['no job', { every: '1h' }, 'Expected `name` to be a text of 1 to 500 bytes'],
  ['a wrong expression', { job: 'j', cron: 'at noon' }, 'Expected `cron` to be a cron expression of 5, 6'],
  [
    'a wrong zone',
    { job: 'j', cron: '@daily', timezone: 'Mars/Base' },
    'Expected `timezone` to be an IANA time zone',
  ],
  ['a zone of an interval', { ...JOB, timezone: 'UTC' }, 'Expected `timezone` to be left out without `cron`'],
  ['a distance below a second', { job: 'j', every: 999 }, 'Expected `every` to be a duration from 1000 ms'],
  [
    'an end before its start',
    { ...JOB, startAt: new Date(9), stopAt: new Date(8) },
    'Expected `stopAt` to be later than',
  ],
  [
    'no tick to come',
    { ...JOB, stopAt: new Date(9) },
    'Expected the schedule to have a tick from now on, got none',
  ],
  [
    'a year that is over',
    { job: 'j', cron: '0 0 0 1 1 * 2001' },
    'Expected the schedule to have a tick from now on',
  ],
  ['no runs', { ...JOB, maxRuns: 0 }, 'Expected `maxRuns` to be a whole number from 1'],
  [
    'too long a jitter',
    { ...JOB, jitter: '25h' },
    'Expected `jitter` to be a duration from 0 ms to 86400000 ms',
  ],
  [
    'an unknown policy',
    { ...JOB, missed: 'some' },
    "Expected `missed` to be 'skip' or 'once' or 'all', got \"some\".",
  ],
  [
    'a bound of nothing',
    { ...JOB, missed: 'skip', catchUp: '1h' },
    'Expected `catchUp` to be left out unless',
  ],
  [
    'all that overlap',
    { ...JOB, missed: 'all', overlap: 'skip' },
    "Expected `overlap` to be 'allow' with `missed: 'all'`",
  ],
  [
    'a policy after the end',
    { job: 'j', afterEnd: '1h', missed: 'all' },
    'Expected `missed` to be left out with `afterEnd`',
  ],
  ['a payload that is no object', { ...JOB, payload: [1] }, 'Expected `payload` to be an object'],
  [
    'a payload with `schedule`',
    { ...JOB, payload: { schedule: 1 } },
    'Expected `payload` to be an object without `schedule`',
  ],
  [
    'too large a payload',
    { ...JOB, payload: { text: 'x'.repeat(70_000) } },
    'Expected `payload` to be at most 65536 bytes',
  ],
  ['a key', { ...JOB, key: 'k' }, 'Expected the options to be among `cron`'],
  ['a wrong priority', { ...JOB, priority: 1e9 }, 'Expected `priority` to be a whole number'],
  ['an empty tenant', { ...JOB, tenant: '' }, 'Expected `tenant` to be a text of 1 to 500 bytes'],
])('%s', async (_, schedule, message) => {
  await using at = await openSchedules()
  const refusal = { code: 'invalid-argument', message: expect.stringContaining(message) }
  await expect(at.schedules.add('a', schedule as never)).rejects.toMatchObject(refusal)
  await expect(at.schedules.put('a', schedule as never)).rejects.toMatchObject(refusal)
  expect(await at.schedules.find('a')).toBeNull()
})

test('wrong calls say what was expected', async () => {
  await using at = await openSchedules()
  const { schedules } = at
  const wrong = <T>(call: (schedules: JobSchedules) => Promise<T>, message: string) =>
    expect(call(schedules)).rejects.toMatchObject({
      code: 'invalid-argument',
      message: expect.stringContaining(message),
    })
  await schedules.add('a', JOB)
  await wrong((all) => all.change('a', { stopAt: new Date(9) }), 'Expected the schedule to have a tick')
  await wrong((all) => all.change('a', { job: '' }), 'Expected `name` to be a text')
  await wrong(
    (all) => all.pause({}),
    'Expected `selection` to be ids, or a filter with at least one property',
  )
  await wrong(
    (all) => all.remove({ state: 'over' } as never),
    'Expected the options to be among `tenant`, `job`',
  )
  await wrong(
    (all) => all.list({ state: 'asleep' as never }),
    'Expected `state` to be one of active, paused, over',
  )
  for (const hole of [[undefined] as never, new Array(1) as never]) {
    await wrong((all) => all.list({ state: hole }), 'Expected `state` to be one of active, paused, over')
    await wrong((all) => all.pause(hole), 'Expected `ids` to be a text')
  }
  await wrong((all) => all.nextRuns('nobody', 1), 'Expected `id` to be the id of a schedule, got "nobody".')
  await wrong((all) => all.nextRuns('a', 0), 'Expected `count` to be a whole number from 1 to 1000')
  await wrong((all) => all.nextRuns({}, 1), 'Expected `cron` to be given alone')
  expect(() => createJobSchedules({} as never)).toThrow(
    'Expected `jobs` to be what createJobs(…) or openJobs(…) returns',
  )
  expect(() => createJobSchedules(at.jobs, { pollInterval: '1m' })).toThrow(
    'Expected `pollInterval` to be a duration from 20 ms to 30000 ms',
  )
  await at.jobs.close()
  expect(() => schedules.start()).toThrow('These jobs were closed')
})
