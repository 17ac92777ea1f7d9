import { expect, test } from 'vitest'
import { seededRandom } from '../../src/testing/index.ts'
import { type Member, Stage } from './stage.ts'

const SEEDS = 25
const FOR_MS = 300_000
const MOST_SKEW_MS = 60_000

interface History {
  readonly told: readonly string[]
  readonly all: readonly number[]
  /** How many runs overlapped at most. */
  readonly together: number
}

/** Plays a fleet at random: processes are killed, join, are cut off and get a wrong time. Returns its runs. */
async function history(seed: number): Promise<History> {
  const random = seededRandom(seed)
  const stage = new Stage()
  const begunAt = stage.clock.wallMs()
  const fleet = new Set<Member>()
  const killed = new Set<Member>()
  const ended: { readonly tick: string; readonly member: Member }[] = []
  let running = 0
  let together = 0

  const join = () => {
    const member = stage.member(`m${fleet.size + killed.size}`, {
      aheadMs: random.between(-MOST_SKEW_MS, MOST_SKEW_MS),
    })
    const work = async ({ scheduledAt, signal }: { scheduledAt: Date; signal: AbortSignal }) => {
      running += 1
      together = Math.max(together, running)
      try {
        await stage.pass(random.between(0, 6000), signal)
        ended.push({ tick: scheduledAt.toISOString(), member })
      } finally {
        running -= 1
      }
    }
    member.schedule.add(
      'job',
      '*/5 * * * * *',
      {
        missed: 'all',
        catchUp: '10m',
        overlap: 'queue',
        ttl: '3s',
      },
      work,
    )
    member.schedule.start()
    fleet.add(member)
  }

  for (let members = random.between(2, 5); members > 0; members -= 1) join()
  for (let passedMs = 0; passedMs < FOR_MS; ) {
    const pauseMs = random.between(1, 20_000)
    await stage.clock.advance(pauseMs)
    passedMs += pauseMs
    const member = random.pick([...fleet])
    switch (random.between(0, 4)) {
      case 0:
        fleet.delete(member)
        killed.add(member)
        await stage.kill(member)
        if (fleet.size < 2) join()
        break
      case 1:
        fleet.delete(member)
        await stage.clock.until(member.schedule.stop({ grace: random.between(0, 5000) }))
        if (fleet.size < 2) join()
        break
      case 2:
        member.setClock(random.between(-MOST_SKEW_MS, MOST_SKEW_MS))
        break
      case 3:
        member.store.always('fail')
        // The store fails for less time than a lease would need to be lost between the end of a run and the moment when
        // the store hears of it.
        await stage.clock.advance(random.between(1, 1500))
        member.store.always('answer')
        break
      default:
        join()
    }
  }
  // Time to finish the runs that are open.
  await stage.clock.advance(120_000)

  return {
    // A process that was killed may not have recorded the end of its last run.
    told: ended.filter(({ member }) => !killed.has(member)).map(({ tick }) => tick),
    // Counts ticks only from the moment when all processes knew the job, each by its own clock.
    all: [...new Set(ended.map(({ tick }) => Date.parse(tick)))]
      .sort((one, other) => one - other)
      .filter((at) => at > begunAt + MOST_SKEW_MS),
    together,
  }
}

test.each(Array.from({ length: SEEDS }, (_, seed) => seed))(
  'a random fleet runs each tick, none twice, and no two at once (seed %i)',
  async (seed) => {
    const { told, all, together } = await history(seed)
    expect(told.filter((tick, at) => told.indexOf(tick) !== at)).toEqual([])
    expect(together).toBe(1)
    expect(all).toEqual(all.map((_, at) => (all[0] ?? 0) + at * 5000))
    expect(all.length).toBeGreaterThan((FOR_MS - MOST_SKEW_MS) / 5000)
  },
)
