import { afterAll, beforeAll, expect, test } from 'vitest'
import type { ScheduleFire } from '../../../src/jobs/schedules/index.ts'
import { until } from '../../servers/until.ts'
import { closeSharedServer, sharedServer } from '../scene.ts'
import { letPass, openSchedules } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

/** What a newer version might store. */
const NEWER = {
  'an option of its jobs': `{jobOptions,expiresIn}', '60000'`,
  'a setting': `{exceptOn}', '"holidays"'`,
  'a policy of missed ticks': `{missed}', '"some"'`,
  'a policy of overlaps': `{overlap}', '"queue"'`,
  'a time zone': `{timezone}', '"Moon/Tranquility"'`,
}

test('schedules that this version does not fully know stay as they are, and the others fire', async () => {
  const fires: ScheduleFire[] = []
  const errors: unknown[] = []
  await using at = await openSchedules({
    onFire: (fire) => fires.push(fire),
    onError: (error) => errors.push(error),
  })
  const { schedules, scene } = at
  const unknown = Object.keys(NEWER)
  for (const [id, change] of Object.entries(NEWER)) {
    await schedules.add(id, { job: 'j', cron: '0 * * * *' })
    await scene.sql(
      `update $schema.job_schedules set definition = jsonb_set(definition::jsonb, '${change})::json where id = '${id}'`,
    )
  }
  await letPass(scene, 3700)
  for (const id of ['known', 'known, too'])
    await schedules.add(id, { job: 'j', every: '1s', overlap: 'allow' })
  const stored = () => scene.sql(`select * from $schema.job_schedules where id not like 'known%' order by id`)
  const before = await stored()
  schedules.start()
  await until('the others have fired twice', () => fires.length >= 4)
  expect(new Set(fires.map(({ id }) => id))).toEqual(new Set(['known', 'known, too']))
  const refusal = (id: string) => ({
    code: 'store-refused',
    message: expect.stringContaining(`cannot read the schedule "${id}"`),
  })
  expect(errors).toHaveLength(unknown.length)
  expect(errors).toMatchObject(
    expect.arrayContaining(unknown.map((id) => expect.objectContaining(refusal(id)))),
  )
  for (const id of unknown.filter((each) => each !== 'a time zone'))
    await expect(schedules.change(id, { priority: 1 })).rejects.toMatchObject(refusal(id))
  for (const id of unknown) {
    await expect(schedules.nextRuns(id, 1)).rejects.toMatchObject(refusal(id))
    expect(await schedules.find(id)).toMatchObject({ id, state: 'active' })
  }
  await expect(schedules.run('an option of its jobs')).rejects.toMatchObject(refusal('an option of its jobs'))
  // So a newer process finds their ticks as late as they are.
  expect(await stored()).toEqual(before)
})

test('to resume schedules, one of which this version cannot read, lets the others go on', async () => {
  await using at = await openSchedules()
  const { schedules, scene } = at
  for (const id of ['a', 'b', 'c']) await schedules.add(id, { job: 'j', cron: '0 * * * *', tenant: 't' })
  expect(await schedules.pause({ tenant: 't' })).toEqual(['a', 'b', 'c'])
  await scene.sql(`update $schema.job_schedules
    set definition = jsonb_set(definition::jsonb, '${NEWER['a time zone']})::json where id = 'b'`)
  await expect(schedules.resume({ tenant: 't' })).rejects.toMatchObject({
    code: 'store-refused',
    message: expect.stringContaining('cannot read the schedule "b"'),
  })
  const { schedules: all } = await schedules.list()
  expect(all.map(({ id, state }) => [id, state])).toEqual([
    ['a', 'active'],
    ['b', 'paused'],
    ['c', 'active'],
  ])
})

test.each([
  ['by an error', `raise 'No credit'`],
  ['by an error with a code of its own', `raise 'No credit' using errcode = '45000'`],
  ['because a table is gone', 'perform from credits'],
])('a schedule whose job a trigger refuses %s does not keep the others from firing', async (_, refusal) => {
  const fires: ScheduleFire[] = []
  const errors: unknown[] = []
  await using at = await openSchedules({
    onFire: (fire) => fires.push(fire),
    onError: (error) => errors.push(error),
  })
  const { schedules, scene } = at
  await scene.sql(`create function $schema.refuse() returns trigger language plpgsql as
    $$ begin ${refusal}; end $$`)
  await scene.sql(`create trigger refuse before insert on $schema.jobs for each row
    when (new.name = 'refused') execute function $schema.refuse()`)
  for (const id of ['a', 'b', 'c'])
    await schedules.add(id, { job: id === 'b' ? 'refused' : 'j', every: '1h' })
  await letPass(scene, 3600)
  schedules.start()
  await until('the others have fired', () => fires.length === 2)
  await schedules.add('later', { job: 'j', every: '1s', overlap: 'allow' })
  await until('another one has fired', () => fires.length === 4)
  expect(new Set(fires.map(({ id }) => id))).toEqual(new Set(['a', 'c', 'later']))
  expect(errors).toMatchObject([
    { code: 'store-refused', message: expect.stringContaining('the job of the schedule "b"') },
  ])
  expect(await schedules.find('b')).toMatchObject({ state: 'active', runs: 0, missedTicks: 0 })
})

test('a schedule that could not be read fires as soon as it can be', async () => {
  const fires: ScheduleFire[] = []
  const errors: unknown[] = []
  await using at = await openSchedules({
    onFire: (fire) => fires.push(fire),
    onError: (error) => errors.push(error),
  })
  const { schedules, scene } = at
  await schedules.add('a', { job: 'j', every: '1h' })
  await scene.sql(
    `update $schema.job_schedules set definition = jsonb_set(definition::jsonb, '{missed}', '"some"')::json`,
  )
  await letPass(scene, 3600)
  schedules.start()
  await until('it was not read', () => errors.length === 1)
  await schedules.put('a', { job: 'j', every: '1h', overlap: 'allow' })
  await until('it has fired', () => fires.length === 1)
  expect(await schedules.find('a')).toMatchObject({ runs: 1, missedTicks: 0 })
})
