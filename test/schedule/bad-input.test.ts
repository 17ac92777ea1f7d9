import { expect, test } from 'vitest'
import type { Locks } from '../../src/index.ts'
import {
  createSchedule,
  nodeCronCoordinator,
  type ScheduledJobOptions,
  type ScheduleOptions,
} from '../../src/schedule/index.ts'
import { errorOf } from '../engine/scene.ts'
import { Stage } from './stage.ts'

const work = () => {}
const broken = <T>(value: unknown) => value as T

test.each<[string, unknown]>([
  ['nonsense', '"nonsense"'],
  ['', '""'],
  ['* * * *', '"* * * *"'],
  ['* * * * * * * *', '"* * * * * * * *"'],
  ['61 * * * *', '"61 * * * *"'],
  ['2027-02-03T04:05:06', '"2027-02-03T04:05:06"'],
  [broken<string>(undefined), 'undefined'],
  [broken<string>(5), '5'],
  [broken<string>(new Date(0)), 'an object (Date)'],
])('the expression %j is refused', (expression, shown) => {
  const { schedule } = new Stage().member('a')
  expect(() => schedule.add('job', expression, work)).toThrow(
    `Expected \`expression\` to be a cron expression of 5, 6 (seconds first) or 7 (years last) fields, got ${shown}.`,
  )
  expect(schedule.jobs).toEqual([])
})

test.each(['0 0 30 2 *', '0 0 0 1 1 * 2020'])(
  'the expression %j, which never comes, is refused',
  (expression) => {
    const { schedule } = new Stage().member('a')
    expect(() => schedule.add('job', expression, work)).toThrow(
      `Expected \`expression\` to match some time from now on, got "${expression}".`,
    )
  },
)

test('an expression that is too long to be a part of a key is refused', async () => {
  const stage = new Stage()
  const { schedule, errors } = stage.member('a')
  const all = Array.from({ length: 60 }, (_, number) => number).join()
  schedule.add('x'.repeat(500), `${all} ${all} * * * *`, { missed: 'all' }, work)
  schedule.start()
  await stage.clock.advance(5000)
  expect(errors).toEqual([])
  expect(() => schedule.add('job', `${all},${all},${all} * * * *`, work)).toThrow(
    /^Expected `expression` to have at most 400 characters, got \d{3}\.$/,
  )
})

test.each([
  ['No/Where', '"No/Where"'],
  ['', '""'],
  [broken<string>(2), '2'],
  [broken<string>(null), 'null'],
])('the zone %j is refused', (timezone, shown) => {
  const message = `Expected \`timezone\` to be an IANA time zone, such as 'Europe/Berlin' or 'UTC', got ${shown}.`
  const stage = new Stage()
  const { schedule, locks } = stage.member('a')
  expect(() => createSchedule(locks, { timezone })).toThrow(message)
  if (timezone !== null) expect(() => schedule.add('job', '* * * * *', { timezone }, work)).toThrow(message)
})

test.each<[ScheduledJobOptions, string]>([
  [{ catchUp: -1, missed: 'all' }, 'Expected `catchUp` to be a duration from 0 ms'],
  [{ catchUp: '1h' }, "Expected `catchUp` to be left out unless `missed` is 'once' or 'all', got \"1h\"."],
  [{ minHold: '-5s' }, 'Expected `minHold` to be a duration from 0 ms'],
  [{ maxRun: 0 }, 'Expected `maxRun` to be a duration from 50 ms'],
  [
    { minHold: '2m', maxRun: '1m' },
    'Expected `maxRun` to be at least as long as `minHold` (120000 ms), got "1m".',
  ],
  [{ ttl: Number.NaN }, 'Expected `ttl` to be a duration from 50 ms'],
  [{ missed: broken('later') }, "Expected `missed` to be 'skip' or 'once' or 'all', got \"later\"."],
  [{ overlap: broken(true) }, "Expected `overlap` to be 'skip' or 'queue', got true."],
  [{ afterCrash: broken('') }, "Expected `afterCrash` to be 'retry' or 'skip', got \"\"."],
  [broken({ jitter: 5 }), 'Expected the options to be among `timezone`, `missed`, `catchUp`, '],
  [broken(7), 'Expected the options to be an object, got 7.'],
  [broken(null), 'Expected the options to be an object, got null.'],
])('the job options %j are refused', (options, message) => {
  const { schedule } = new Stage().member('a')
  expect(() => schedule.add('job', '* * * * *', options, work)).toThrow(message)
  expect(schedule.jobs).toEqual([])
})

test.each<[ScheduleOptions, string]>([
  [{ grace: -1 }, 'Expected `grace` to be a duration from 0 ms'],
  [{ onRun: broken('log') }, 'Expected `onRun` to be a function, got "log".'],
  [{ onError: broken(1) }, 'Expected `onError` to be a function, got 1.'],
  [{ clock: broken({ wallMs: Date.now }) }, 'Expected `clock.monotonicMs` to be a function, got undefined.'],
  [
    broken({ tz: 'UTC' }),
    'Expected the options to be among `timezone`, `grace`, `onRun`, `onError`, `clock`, got `tz`.',
  ],
])('the schedule options %j are refused', (options, message) => {
  const { locks } = new Stage().member('a')
  expect(() => createSchedule(locks, options)).toThrow(message)
})

test.each([
  ['', '""'],
  ['x'.repeat(501), '(501 characters)'],
  [broken<string>(undefined), 'undefined'],
])('a name such as %j is refused', (name, shown) => {
  const { schedule } = new Stage().member('a')
  expect(() => schedule.add(name, '* * * * *', work)).toThrow(
    'Expected `name` to be a string of 1 to 500 characters, got ',
  )
  expect(() => schedule.add(name, '* * * * *', work)).toThrow(shown)
})

test('a name that no store can keep is refused', () => {
  const { schedule } = new Stage().member('a')
  expect(() => schedule.add('a\0b', '* * * * *', work)).toThrow('text without NUL')
})

test('work that is no function is refused', () => {
  const { schedule } = new Stage().member('a')
  expect(() => schedule.add('job', '* * * * *', 'work' as never)).toThrow(
    'Expected `work` to be a function, got "work".',
  )
})

test('a process has each name for one job only, whatever the expression, and in whichever schedule', async () => {
  const stage = new Stage()
  const { schedule, locks } = stage.member('a')
  const job = schedule.add('job', '* * * * *', work)
  const message =
    'Expected `name` to be that of one job only, got "job", which is scheduled at "* * * * *" already.'
  for (const one of [schedule, createSchedule(locks)]) {
    expect(() => one.add('job', '0 3 * * *', work)).toThrow(message)
    expect(() => one.add('job', '* * * * *', work)).toThrow(message)
  }
  await job.stop()
  const other = createSchedule(locks)
  expect(other.add('job', '0 3 * * *', work).expression).toBe('0 3 * * *')
  await other.stop()
})

test.each([undefined, null, {}, 'redis://localhost'])('%j are no locks', (locks) => {
  const message = 'Expected `locks` to be what createLocks(…) or connect(…) returns, got '
  expect(() => createSchedule(broken<Locks>(locks))).toThrow(message)
  expect(() => nodeCronCoordinator(broken<Locks>(locks))).toThrow(message)
})

test('a timeout that is no duration is refused, and nothing is stopped', async () => {
  const stage = new Stage()
  const { schedule } = stage.member('a')
  const job = schedule.add('job', '* * * * *', work)
  expect(await errorOf(schedule.stop({ grace: -1 }))).toMatchObject({ code: 'invalid-argument' })
  expect(await errorOf(job.stop({ grace: broken('soon') }))).toMatchObject({ code: 'invalid-argument' })
  expect(await errorOf(schedule.stop(broken({ force: true })))).toMatchObject({ code: 'invalid-argument' })
  schedule.start()
  expect(schedule.jobs).toEqual([job])
})
