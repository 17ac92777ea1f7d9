// One process with a worker, until it is killed or told to stop. Its wall clock is wrong by so many milliseconds. A job `seed` enqueues
// a family: jobs in groups, jobs of limited names, and jobs that wait for them.
import { Pool, type PoolClient } from 'pg'
import type { ClaimedJob, EnqueueOptions, RunningJob } from '../../src/jobs/index.ts'
import { setWallClockAhead } from '../servers/wrong-clock.ts'

const [url = '', schema = '', skew = '0', ttl = '30s'] = process.argv.slice(2)
setWallClockAhead(Number(skew))

const { createJobs } = await import('../../src/jobs/index.ts')

interface Family {
  readonly family: number
}
interface Names {
  readonly [name: string]: Family
}

const pool = new Pool({ connectionString: url, max: 8 })
// The database ends connections that are in use.
pool.on('error', () => {})
pool.on('connect', (client) => client.on('error', () => {}))
const jobs = createJobs<Names>(pool, { schema })
/** What must never happen. */
const faults: string[] = []

async function inTransaction(work: (client: PoolClient) => Promise<void>): Promise<void> {
  const client = await pool.connect()
  let failure: Error | undefined
  try {
    await client.query('begin')
    await work(client)
    await client.query('commit')
  } catch (error) {
    failure = error as Error
    throw error
  } finally {
    // A transaction that failed ends with its connection.
    client.release(failure)
  }
}

/** The seed ends in the transaction that enqueues its family, so there is one family of each seed. */
function seed(job: RunningJob<Family>): Promise<void> {
  const { family } = job.payload
  return inTransaction(async (transaction) => {
    const enqueue = async (name: string, options: EnqueueOptions): Promise<string> =>
      (await jobs.enqueue(
        name,
        { family },
        { maxAttempts: 100, backoff: 50, maxBackoff: 100, transaction, ...options },
      )) ?? ''
    const customer = { group: `customer:${family % 3}`, groupLimit: 1 + (family % 3) }
    const parts = [
      await enqueue('part', customer),
      await enqueue('part', { ...customer, delay: 30 }),
      await enqueue('flaky', customer),
      await enqueue('few', { group: 'shared', groupLimit: 4 }),
      await enqueue('rated', {}),
    ]
    const doomed = await enqueue('doomed', { ...customer, maxAttempts: 1 })
    const whole = await enqueue('whole', { children: parts, group: 'wholes', groupLimit: 2 })
    await enqueue('careful', { children: [parts[0] ?? '', doomed] })
    await enqueue('brave', {
      children: [doomed, whole],
      ifChildFails: 'run',
      delay: 50,
      group: 'shared',
      groupLimit: 4,
    })
    await job.complete({ transaction })
  })
}

async function part({ payload }: RunningJob<Family>): Promise<number> {
  await new Promise((resolve) => setTimeout(resolve, 5 + 20 * Math.random()))
  return payload.family
}

/** Ends in the transaction that records its effect. */
async function parent(job: RunningJob<Family>): Promise<void> {
  for (const { name, state, result } of await job.children()) {
    const isDone = name === 'doomed' ? state === 'dead' : state === 'completed'
    const isOwn = !['part', 'flaky', 'few', 'rated'].includes(name) || result === job.payload.family
    if (!isDone || !isOwn)
      faults.push(`${job.name} ${job.id} has a ${state} child ${name}: ${JSON.stringify(result)}`)
  }
  await inTransaction(async (client) => {
    await client.query(`insert into ${schema}.effects values ($1)`, [job.id])
    await job.complete({ transaction: client })
  })
}

const worker = jobs.work(
  {
    seed,
    part,
    few: part,
    rated: part,
    flaky: (job) => {
      if (job.attempt === 1) throw new Error('the first attempt fails')
      return part(job)
    },
    doomed: () => {
      throw new Error('always fails')
    },
    whole: parent,
    brave: parent,
    careful: ({ id }: ClaimedJob) => faults.push(`${id} runs, although a child is dead`),
  },
  {
    concurrency: 6,
    ttl,
    onFailure: () => {},
    onError: (error) => {
      if ((error as { code?: unknown }).code !== 'store-unavailable') faults.push(String(error))
    },
  },
)

process.on('disconnect', () => process.exit(1))
process.on('message', async () => {
  await worker.stop()
  await jobs.close()
  await pool.end()
  process.send?.(faults)
  process.disconnect()
})
process.send?.('ready')
