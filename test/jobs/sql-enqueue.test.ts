import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { EnqueueOptions, Jobs } from '../../src/jobs/index.ts'
import { until } from '../servers/until.ts'
import { closeSharedServer, type JobsScene, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

/** Runs a script in psql, as a program in any other language would send it. Resolves with the values that it prints. */
async function psql(scene: JobsScene, script: string): Promise<readonly string[]> {
  const words = ['-d', scene.server.url, '-v', 'ON_ERROR_STOP=1', '-v', 'VERBOSITY=verbose', '-qAt', '-c']
  const { stdout } = await promisify(execFile)('psql', [...words, script.replaceAll('$schema', scene.schema)])
  return stdout.split('\n').slice(0, -1)
}

/**
 * What a claim and the clean-up will see of the jobs, in order: all but ids and instants. Times are in whole minutes, because it takes
 * some time to enqueue them.
 */
async function rows(scene: JobsScene): Promise<readonly unknown[]> {
  const all = await scene.sql(`
    select to_jsonb(j) - '{id,enqueued_at,due_at,ready_at,key_until}'::text[] || jsonb_build_object(
      'due', round(extract(epoch from due_at - enqueued_at) / 60), 'key', round(extract(epoch from key_until - enqueued_at) / 60)
    ) as job from $schema.jobs j where name = 'same' order by id`)
  return all.map(({ job }) => job)
}

test('the statements of the page work as they are', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await psql(scene, 'create table $schema.orders (customer text)')
  const page = readFileSync(new URL('../../docs/jobs-sql.md', import.meta.url), 'utf8')
  const fences = [...page.matchAll(/^```sql\n(.*?)^```$/gms)].map(([, sql = '']) => sql)
  const path = `set search_path = ${scene.schema};`
  for (const sql of fences)
    await psql(
      scene,
      `${path} insert into orders values ('acme'); ${sql.replaceAll('holdfast.', '$schema.')}`,
    )
  const found = await Promise.all(['send-receipt', 'bill', 'remind'].map((name) => jobs.list({ name })))
  expect(found.map((page) => page.jobs.map(({ key, group }) => key ?? group))).toEqual([
    ['order:43', null],
    ['customer:acme'],
    [null],
  ])
})

test('a transaction in psql enqueues jobs that exist when it commits, and only then', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const [id] = await psql(
    scene,
    `begin; select $schema.enqueue('receipt', '{"order": 42, "text": "ß \\u0001"}'); commit`,
  )
  await psql(scene, `begin; select $schema.enqueue('receipt'); rollback`)
  const claimed = await jobs.claim('receipt', { limit: 5 })
  expect(claimed.map((job) => [job.id, job.payload])).toEqual([[id, { order: 42, text: 'ß \u0001' }]])
})

test('the function makes the same jobs of the same options as `enqueue`', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const inAnHour = new Date(Date.now() + 3_600_000)
  const usual: readonly EnqueueOptions[] = [
    {},
    { priority: -7, maxAttempts: 3, backoff: '1.5 s', maxBackoff: 90_000 },
    { delay: '2d', group: 'g' },
    { runAt: inAnHour, group: 'g', groupLimit: 4 },
    { key: 'waiting' },
    { key: 'running', uniqueFor: 'running' },
    { key: 'while', uniqueFor: '10m', ifTaken: 'update' },
    { key: 'later', delay: 180_000, ifTaken: 'postpone' },
  ]
  const child = (await jobs.enqueue('child', null, { delay: '1h' })) ?? ''
  const options: readonly EnqueueOptions[] = [
    ...usual,
    { children: [child] },
    { children: [child], ifChildFails: 'run' },
  ]
  for (const each of options) await jobs.enqueue('same', { n: 1 }, each)
  const made = await rows(scene)
  await scene.sql(`delete from $schema.jobs where name = 'same'`)
  for (const each of options)
    await scene.pool.query(`select ${scene.schema}.enqueue('same', $1, $2)`, [{ n: 1 }, each])
  expect(await rows(scene)).toEqual(made)
  expect(made).toHaveLength(options.length)
})

test('the session may read a backslash in a text in the old way', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const options = `{"delay": "5m", "children": []}`
  const [id] = await psql(
    scene,
    `set standard_conforming_strings = off; set escape_string_warning = off; select $schema.enqueue('a', '1', '${options}')`,
  )
  expect(await jobs.find(id ?? '')).toMatchObject({ state: 'delayed' })
  const at = `{"runAt": "2036-11-23T05:00:00.5+01:00"}`
  const set = 'set standard_conforming_strings = off; set escape_string_warning = off;'
  const [later] = await psql(scene, `${set} select $schema.enqueue('a', '1', '${at}')`)
  expect(await jobs.find(later ?? '')).toMatchObject({ dueAt: new Date('2036-11-23T04:00:00.500Z') })
})

test('a key that is taken answers null, or the id of the job that it has changed', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const enqueue = (payload: number, rules: string) =>
    psql(
      scene,
      `select coalesce($schema.enqueue('save', '${payload}', '{"key": "cart", "delay": "1h"${rules}}')::text, 'null')`,
    )
  const [id] = await enqueue(1, '')
  expect(await enqueue(2, '')).toEqual(['null'])
  expect(await enqueue(3, ', "ifTaken": "update"')).toEqual([id])
  expect(await jobs.find(id ?? '')).toMatchObject({ payload: 3, key: 'cart' })
})

test('a trigger of the user enqueues, and a worker that does not poll begins at once', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await psql(
    scene,
    `create table $schema.orders (id integer);
    create function $schema.order_placed() returns trigger language plpgsql as $f$
    begin
      perform $schema.enqueue('bill', to_jsonb(new), jsonb_build_object('key', 'order:' || new.id, 'priority', null));
      return null;
    end $f$;
    create trigger placed after insert on $schema.orders for each row execute function $schema.order_placed()`,
  )
  const billed: unknown[] = []
  const errors: unknown[] = []
  jobs.work(
    { bill: ({ payload }) => billed.push(payload) },
    { pollInterval: '1h', onError: (error) => errors.push(error) },
  )
  await until('the worker listens', async () => {
    const [row] = await scene.sql(
      `select count(*)::int as listening from pg_stat_activity where query ilike 'listen%holdfast_jobs%'`,
    )
    return Number(row?.['listening']) > 0
  })
  await psql(scene, 'insert into $schema.orders select generate_series(1, 3)')
  await until('the jobs have run', () => billed.length === 3)
  expect(billed).toEqual([{ id: 1 }, { id: 2 }, { id: 3 }])
  expect(errors).toEqual([])
})

test('what cannot be enqueued is named in one sentence, with the code of a wrong argument', async () => {
  await using scene = await openScene()
  const jobs: Jobs = scene.open()
  await jobs.migrate()
  const duration = 'a duration from 0 ms to 24 days (milliseconds, or "250ms", "30s", "5m", "1h", "2d")'
  const cases: readonly (readonly [call: string, message: string])[] = [
    [`''`, 'Expected `name` to be a text of 1 to 500 bytes, got "".'],
    ['null', 'Expected `name` to be a text of 1 to 500 bytes, got null.'],
    [`repeat('é', 251)`, 'Expected `name` to be a text of 1 to 500 bytes, got "éé'],
    [`'a', '1', '[]'`, 'Expected `options` to be a JSON object, got [].'],
    [`'a', '1', '7'`, 'Expected `options` to be a JSON object, got 7.'],
    [`'a', '1', '{"delayed": 1}'`, 'Expected `options` to be options of jobs.enqueue(), got "delayed".'],
    [`'a', '1', '{"delay": "1 week"}'`, `Expected \`delay\` to be ${duration}, got "1 week".`],
    [`'a', '1', '{"delay": -1}'`, `Expected \`delay\` to be ${duration}, got -1.`],
    [`'a', '1', '{"backoff": "25d"}'`, `Expected \`backoff\` to be ${duration}, got "25d".`],
    [
      `'a', '1', '{"priority": 0.5}'`,
      'Expected `priority` to be a whole number from -32768 to 32767, got 0.5.',
    ],
    [
      `'a', '1', '{"priority": "1"}'`,
      'Expected `priority` to be a whole number from -32768 to 32767, got "1".',
    ],
    [`'a', '1', '{"maxAttempts": 0}'`, 'Expected `maxAttempts` to be a whole number from 1 to 1000, got 0.'],
    [`'a', '1', '{"group": 5}'`, 'Expected `group` to be a text of 1 to 500 bytes, got 5.'],
    [`'a', '1', '{"groupLimit": 5}'`, 'Expected `group` to be given beside `groupLimit`, got nothing.'],
    [
      `'a', '1', '{"runAt": "tomorrow"}'`,
      'Expected `runAt` to be a time with its zone, such as "2026-11-23T05:00:00Z", got "tomorrow".',
    ],
    [`'a', '1', '{"runAt": "2026-13-23T05:00:00Z"}'`, 'Expected `runAt` to be a time with its zone,'],
    [`'a', '1', '{"runAt": "2026-11-23T05:00:00+99:00"}'`, 'Expected `runAt` to be a time with its zone,'],
    [`'a', '1', '{"runAt": "2026-11-23T05:00:00-16:00"}'`, 'Expected `runAt` to be a time with its zone,'],
    [
      `'a', '1', '{"runAt": "2026-11-23T05:00:00Z", "delay": 1}'`,
      'Expected `runAt` to be left out beside `delay`',
    ],
    [
      `'a', '1', '{"ifTaken": "drop", "key": "k"}'`,
      'Expected `ifTaken` to be keep, update or postpone, got "drop".',
    ],
    [
      `'a', '1', '{"uniqueFor": "1h"}'`,
      'Expected `key` to be given beside `uniqueFor` or `ifTaken`, got nothing.',
    ],
    [
      `'a', '1', '{"uniqueFor": "ever", "key": "k"}'`,
      `Expected \`uniqueFor\` to be ${duration}, got "ever".`,
    ],
    [
      `'a', '1', '{"children": "7"}'`,
      'Expected `children` to be an array of up to 1000 ids of jobs, got "7".',
    ],
    [
      `'a', '1', '{"children": [7, "x"]}'`,
      'Expected `children` to be an array of up to 1000 ids of jobs, got',
    ],
    [
      `'a', '1', '{"ifChildFails": "run"}'`,
      'Expected `children` to be given beside `ifChildFails`, got nothing.',
    ],
    [
      `'a', '1', '{"children": [7], "ifChildFails": "no"}'`,
      'Expected `ifChildFails` to be cancel, run or wait, got',
    ],
    [
      `'a', to_jsonb(repeat('x', 1048576))`,
      'Expected `payload` to be at most 1048576 bytes of JSON, got 1048578.',
    ],
  ]
  for (const [call, message] of cases) {
    const answer = scene.sql(`select $schema.enqueue(${call})`)
    await expect(answer, call).rejects.toMatchObject({
      code: '22023',
      message: expect.stringContaining(message),
    })
  }
  await expect(psql(scene, `select $schema.enqueue('a', '1', '{"delay": "x"}')`)).rejects.toMatchObject({
    stderr: expect.stringContaining('ERROR:  22023: Expected `delay` to be a duration'),
  })
  expect(await jobs.count()).toEqual([])
})
