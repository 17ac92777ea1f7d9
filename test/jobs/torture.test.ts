import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { bundled } from '../servers/bundled.ts'
import { until } from '../servers/until.ts'
import { closeSharedServer, type JobsScene, openScene, sharedServer } from './scene.ts'

const PROGRAM = await bundled(new URL('torture-worker.ts', import.meta.url))
const JOBS = 10_000
const PARENTS = 500
const PROCESSES = 4

beforeAll(sharedServer)
afterAll(closeSharedServer)

const children = new Set<ChildProcess>()
for (const event of ['exit', 'disconnect']) {
  process.once(event, () => {
    for (const child of children) child.kill('SIGKILL')
  })
}

async function startProcess(scene: JobsScene): Promise<ChildProcess> {
  const child = fork(PROGRAM, [scene.server.url, scene.schema], { execArgv: [] })
  children.add(child)
  child.once('exit', () => children.delete(child))
  await once(child, 'message', { signal: AbortSignal.timeout(120_000) })
  return child
}

test('of 10,000 jobs every one has its effect exactly once and after its children, with 8 workers in 4 processes of which one is killed every second', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  // The table has no constraint, so a second effect would show.
  await scene.sql(
    'create table $schema.effects (number integer, attempt integer, at timestamptz default clock_timestamp())',
  )
  const one = (number: number) => ({
    name: 'effect',
    payload: { number },
    maxAttempts: 100,
    maxBackoff: 100,
  })
  // Each parent waits for one of the first and one of the last of these.
  const ids: string[] = []
  for (let from = 0; from < JOBS - PARENTS; from += 2000) {
    const some = Array.from({ length: Math.min(2000, JOBS - PARENTS - from) }, (_, n) => one(from + n))
    for (const id of await jobs.enqueueAll(some)) ids.push(id ?? '')
  }
  const pairs = Array.from({ length: PARENTS }, (_, n) => [ids[n] ?? '', ids.at(-1 - n) ?? ''])
  await jobs.enqueueAll(pairs.map((children, n) => ({ ...one(JOBS - PARENTS + n), children, priority: 1 })))
  const processes = await Promise.all(Array.from({ length: PROCESSES }, () => startProcess(scene)))
  let kills = 0
  let isOver = false
  const killing = (async () => {
    while (!isOver) {
      await new Promise((resolve) => setTimeout(resolve, 1000))
      if (isOver) return
      const victim = processes.shift()
      if (victim === undefined) throw new Error('There is nobody to kill')
      const ended = once(victim, 'exit')
      victim.kill('SIGKILL')
      await ended
      kills += 1
      processes.push(await startProcess(scene))
    }
  })()
  await until(
    'no job is left',
    async () => {
      const [row] = await scene.sql('select count(*)::int as left from $schema.jobs')
      return row?.['left'] === 0
    },
    { withinMs: 100_000, everyMs: 200 },
  )
  isOver = true
  await killing
  const [effects] = await scene.sql(
    'select count(*)::int as effects, count(distinct number)::int as jobs, max(attempt) as attempts from $schema.effects',
  )
  expect(effects).toMatchObject({ effects: JOBS, jobs: JOBS })
  expect(await jobs.count()).toMatchObject([{ name: 'effect', state: 'completed', count: JOBS }])
  const [early] = await scene.sql(`
    with number_of as (select id, (payload ->> 'number')::integer as number from $schema.ended_jobs)
    select count(*)::int as parents, count(*) filter (where child.at > parent.at)::int as early from $schema.ended_jobs j
    cross join lateral unnest(j.children) as c (id)
    join number_of p on p.id = j.id join $schema.effects parent on parent.number = p.number
    join number_of q on q.id = c.id join $schema.effects child on child.number = q.number`)
  expect(early).toEqual({ parents: 2 * PARENTS, early: 0 })
  // Otherwise the test would show nothing.
  expect(kills).toBeGreaterThan(1)
  expect(effects?.['attempts']).toBeGreaterThan(1)
  await Promise.all(
    processes.map(async (child) => {
      const told = once(child, 'exit')
      child.send('stop')
      await told
    }),
  )
})
