import { type INestApplicationContext, Injectable, Logger, Module, Scope, type Type } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { systemClock } from '../../src/base/clock.ts'
import { ClosedError } from '../../src/errors.ts'
import { createLocks, type Leadership, type Locks } from '../../src/index.ts'
import { currentLock, HoldfastModule, OnLeadership, Scheduled, WithLock } from '../../src/nestjs/index.ts'
import type { FinishedRun, ScheduledRun } from '../../src/schedule/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { errorOf, outcomeOf } from '../engine/scene.ts'
import { ScriptedStore } from '../engine/scripted-store.ts'
import { gate, twoProcesses } from '../http/scene.ts'
import { until } from '../servers/until.ts'

const EVERY_SECOND = '* * * * * *'

async function start(
  locks: Locks,
  providers: readonly Type[],
  options: Partial<Parameters<typeof HoldfastModule.forRoot>[0]> = {},
  features: readonly Type[] = [],
): Promise<INestApplicationContext> {
  class AppModule {}
  const imports = [HoldfastModule.forRoot({ locks, ...options }), ...features]
  Module({ imports, providers: [...providers] })(AppModule)
  const app = await NestFactory.createApplicationContext(AppModule, { logger: false, abortOnError: false })
  onTestFinished(() => app.close())
  return app
}

/** Two processes at one store. What a schedule remembers of its ticks stays there. */
function twoInstances(): { locks: Locks; other: Locks } {
  const store = memoryStore()
  const [locks, other] = [createLocks(store), createLocks(store)]
  onTestFinished(async () => {
    await Promise.all([locks.close(), other.close()])
  })
  return { locks, other }
}

describe('@Scheduled', () => {
  test('runs each tick in one instance, under its lock, with the run as the argument', async () => {
    const runs: [string, ScheduledRun][] = []
    @Injectable()
    class Reports {
      readonly greeting = 'report'
      @WithLock('database')
      @Scheduled('report', EVERY_SECOND)
      async send(run: ScheduledRun): Promise<void> {
        runs.push([`${this.greeting} under ${currentLock().lease.key}`, run])
      }
    }
    const { locks, other } = twoInstances()
    await Promise.all([start(locks, [Reports]), start(other, [Reports])])
    await until('three runs', () => runs.length >= 3, { withinMs: 30_000 })
    expect(runs[0]?.[0]).toBe('report under database')
    const ticks = runs.map(([, run]) => run.scheduledAt.getTime())
    expect(new Set(ticks).size).toBe(ticks.length)
    expect(runs[0]?.[1]).toMatchObject({ name: 'report', attempt: 1, fence: expect.any(BigInt) })
  })

  test('lets a run end when the application closes, and begins no more', async () => {
    const [begun, end] = [gate(), gate()]
    let runs = 0
    let ended = 0
    @Injectable()
    class Slow {
      @Scheduled('slow', EVERY_SECOND)
      async run(): Promise<void> {
        runs += 1
        begun.open()
        await end.opened
        ended += 1
      }
    }
    const { locks, other } = twoInstances()
    const finished: FinishedRun[] = []
    const schedule = { onRun: (run: FinishedRun) => finished.push(run) }
    const app = await start(locks, [Slow], { schedule })
    await begun.opened
    const closed = app.close()
    end.open()
    await closed
    expect([runs, ended]).toEqual([1, 1])
    expect(finished).toMatchObject([{ name: 'slow', result: 'ok' }])
    expect(await other.peek('schedule:slow')).toBeNull()
  })

  test('may stand at two methods under different names only', async () => {
    @Injectable()
    class Twice {
      @Scheduled('same', '0 3 * * *')
      one(): void {}
      @Scheduled('same', '0 4 * * *')
      two(): void {}
    }
    const { locks } = twoInstances()
    expect((await errorOf(start(locks, [Twice]))).message).toMatch(
      /^Expected `name` to be that of one job only/,
    )
  })
})

describe('@Scheduled, when something goes wrong,', () => {
  test('logs whether a run failed, or the store did not answer', async () => {
    const error = vi.spyOn(Logger.prototype, 'error').mockImplementation(() => {})
    onTestFinished(() => error.mockRestore())
    const store = new ScriptedStore(memoryStore())
    const locks = createLocks(store)
    onTestFinished(() => locks.close())
    @Injectable()
    class Reports {
      @Scheduled('report', EVERY_SECOND)
      send(): void {
        throw new Error('no paper')
      }
    }
    const app = await start(locks, [Reports], { schedule: { onError: undefined } })
    const said = () => error.mock.calls.map(([message]) => String(message))
    await until('a run has failed', () => said().includes('The scheduled job "report" failed. no paper'))
    store.always('refuse')
    const refused = /^The scheduled job "report" could not ask its store, .* and will ask again\. /
    await until('the store has refused', () => said().some((message) => refused.test(message)))
    store.always('answer')
    await app.close()
  })

  test('leaves its names free if the application does not start', async () => {
    @Injectable()
    class Good {
      @Scheduled('report', EVERY_SECOND)
      send(): void {}
    }
    @Injectable()
    class Bad {
      @Scheduled('bill', 'every day')
      send(): void {}
    }
    const { locks } = twoInstances()
    class AppModule {}
    Module({ imports: [HoldfastModule.forRoot({ locks })], providers: [Good, Bad] })(AppModule)
    const broken = await NestFactory.createApplicationContext(AppModule, { logger: false }).catch(
      () => undefined,
    )
    expect(broken).toBeUndefined()
    await start(locks, [Good])
  })
})

describe('@OnLeadership', () => {
  test('leads in one instance, on after the method has returned, until the application closes', async () => {
    const led: string[] = []
    const terms: Leadership[] = []
    @Injectable()
    class Outbox {
      @OnLeadership('outbox', { ttl: '20s', value: 'here' })
      lead(leadership: Leadership): void {
        led.push('led')
        terms.push(leadership)
      }
    }
    const { locks, other } = twoProcesses()
    const first = await start(locks, [Outbox])
    await until('the first one leads', () => led.length === 1)
    const second = await start(other, [Outbox])
    await until('the second one waits', async () => (await locks.peek('outbox'))?.queue.length === 1)
    expect(await other.election('outbox').leader()).toMatchObject({ value: 'here' })
    expect(led).toHaveLength(1)
    await first.close()
    expect(terms[0]?.signal.aborted).toBe(true)
    await until('the second one leads', () => led.length === 2)
    await second.close()
    expect(await locks.peek('outbox')).toBeNull()
  })

  test('hands over only when the method has settled', async () => {
    const [begun, end] = [gate(), gate()]
    const log: string[] = []
    @Injectable()
    class Outbox {
      @OnLeadership('outbox')
      async lead({ signal }: Leadership): Promise<void> {
        log.push('begins')
        begun.open()
        if (log.length > 1) return
        await new Promise((resolve) => signal.addEventListener('abort', resolve))
        await end.opened
        log.push('settles')
      }
    }
    const { locks, other } = twoProcesses()
    const first = await start(locks, [Outbox])
    await begun.opened
    await start(other, [Outbox])
    await until('the second one waits', async () => (await locks.peek('outbox'))?.queue.length === 1)
    const closed = first.close()
    expect((await other.peek('outbox'))?.queue).toHaveLength(1)
    end.open()
    await closed
    await until('the second one leads', () => log.length === 3)
    expect(log).toEqual(['begins', 'settles', 'begins'])
  })

  test('waits at its close no longer than the grace for a method that does not settle', async () => {
    const begun = gate<Leadership>()
    @Injectable()
    class Stuck {
      @OnLeadership('stuck', { ttl: '1s', grace: '100ms' })
      @WithLock('database')
      lead(leadership: Leadership): Promise<void> {
        begun.open(leadership)
        return new Promise(() => {})
      }
    }
    const locks = createLocks(memoryStore())
    onTestFinished(() => locks.close())
    const app = await start(locks, [Stuck])
    const leadership = await begun.opened
    await app.close()
    expect(leadership.lost.aborted).toBe(true)
  })

  test('waits at its close for a method with a lock that a leader has started and not awaited', async () => {
    const [returned, asked, begun, end] = [gate(), gate(), gate(), gate()]
    const states: string[] = []
    @Injectable()
    class Outbox {
      @OnLeadership('outbox')
      lead(): void {
        void asked.opened.then(() => this.send())
        setImmediate(returned.open)
      }

      @WithLock('message')
      async send(): Promise<void> {
        begun.open()
        await end.opened
        states.push(currentLock().lease.state)
      }
    }
    const { locks } = twoProcesses()
    const app = await start(locks, [Outbox])
    await returned.opened
    asked.open()
    await begun.opened
    const closed = app.close()
    expect(await outcomeOf(closed)).toBe('pending')
    end.open()
    await closed
    expect(states).toEqual(['held'])
  })

  test.each<[string, (leadership: Leadership) => unknown, string[]]>([
    [
      'that its method failed',
      () => new Error('disk full'),
      ['Outbox.lead failed as the leader for "outbox". Another instance may lead now. disk full'],
    ],
    ['nothing, if its method throws the reason of its signal', ({ signal }) => signal.reason, []],
    ['nothing, if something else was closed', () => new ClosedError('The locks are closed.'), []],
  ])('says when the application closes: %s', async (_, errorAfter, expected) => {
    const error = vi.spyOn(Logger.prototype, 'error').mockImplementation(() => {})
    onTestFinished(() => error.mockRestore())
    const begun = gate()
    @Injectable()
    class Outbox {
      @OnLeadership('outbox')
      async lead(leadership: Leadership): Promise<void> {
        begun.open()
        await new Promise((resolve) => leadership.signal.addEventListener('abort', resolve))
        throw errorAfter(leadership)
      }
    }
    const { locks } = twoProcesses()
    const app = await start(locks, [Outbox])
    await begun.opened
    await app.close()
    expect(error.mock.calls.map(([message]) => message)).toEqual(expected)
  })

  test.each([
    ['a failure', new Error('not today')],
    ['that of something that is closed', new ClosedError('The queue is stopped.')],
  ])('becomes a candidate again after %s', async (_, error) => {
    let terms = 0
    @Injectable()
    class Failing {
      @OnLeadership('failing')
      async lead(): Promise<void> {
        terms += 1
        if (terms === 1) throw error
      }
    }
    const { locks } = twoProcesses()
    await start(locks, [Failing])
    await until('it leads once more', () => terms === 2, { withinMs: 30_000 })
  })
})

test('pauses after a failure of @OnLeadership as after the first one, if the term before it was a long one', async () => {
  let aheadMs = 0
  const monotonicMs = systemClock.monotonicMs
  vi.spyOn(systemClock, 'monotonicMs').mockImplementation(() => monotonicMs() + aheadMs)
  const pauses: number[] = []
  const startTimer = systemClock.startTimer
  vi.spyOn(systemClock, 'startTimer').mockImplementation((delayMs, fire) => {
    const isPause = [625, 1250, 2500].includes(delayMs)
    if (isPause) pauses.push(delayMs)
    return startTimer(isPause ? 0 : delayMs, fire)
  })
  onTestFinished(() => void vi.restoreAllMocks())
  @Injectable()
  class Failing {
    @OnLeadership('failing', { ttl: '10m' })
    async lead(): Promise<void> {
      // By this chance the pauses have durations that no other timer has. NestJS itself starts with random ids.
      vi.spyOn(Math, 'random').mockReturnValue(0.25)
      if (pauses.length === 2) aheadMs = 31_000
      throw new Error('not today')
    }
  }
  const { locks } = twoProcesses()
  await start(locks, [Failing])
  await until('four pauses', () => pauses.length >= 4, { withinMs: 30_000 })
  expect(pauses.slice(0, 4)).toEqual([625, 1250, 625, 1250])
})

describe('what is wrong is said when the application starts', () => {
  class Named {
    lead(): void {}
  }

  test.each<[string, () => MethodDecorator, RegExp]>([
    ['an expression', () => Scheduled('a', 'every day') as MethodDecorator, /^Expected `expression` to be /],
    ['a name', () => Scheduled('', EVERY_SECOND) as MethodDecorator, /^Expected `name` to be /],
    ['a key', () => OnLeadership('') as MethodDecorator, /^Expected `key` to be /],
    ['a duration', () => OnLeadership('k', { ttl: 'soon' }) as MethodDecorator, /^Expected `ttl` to be /],
  ])('%s', async (_, decorate, message) => {
    @Injectable()
    class Wrong extends Named {
      override lead(): void {}
    }
    const descriptor = Object.getOwnPropertyDescriptor(Wrong.prototype, 'lead') as PropertyDescriptor
    decorate()(Wrong.prototype, 'lead', descriptor)
    const { locks } = twoProcesses()
    expect((await errorOf(start(locks, [Wrong]))).message).toMatch(message)
  })

  test('an instance for each request', async () => {
    @Injectable({ scope: Scope.REQUEST })
    class PerRequest {
      @OnLeadership('k')
      lead(): void {}
    }
    const { locks } = twoProcesses()
    expect((await errorOf(start(locks, [PerRequest]))).message).toBe(
      'Expected `PerRequest.lead` to be a method of a provider of the default scope, got one that NestJS makes for each request or each user of it.',
    )
  })

  test('an instance for each of its users', async () => {
    @Injectable({ scope: Scope.TRANSIENT })
    class PerUser {
      @Scheduled('job', EVERY_SECOND)
      run(): void {}
    }
    const { locks } = twoProcesses()
    expect((await errorOf(start(locks, [PerUser]))).message).toBe(
      'Expected `PerUser.run` to be a method of a provider of the default scope, got one that NestJS makes for each request or each user of it.',
    )
  })

  test('a provider of two modules, whose instances would compete with each other', async () => {
    @Injectable()
    class Outbox {
      @OnLeadership('outbox')
      lead(): void {}
    }
    @Module({ providers: [Outbox] })
    class Feature {}
    const { locks } = twoProcesses()
    expect((await errorOf(start(locks, [Outbox], {}, [Feature]))).message).toBe(
      'Expected the key of `@OnLeadership` to be that of one method only, got "outbox" at `Outbox.lead` and at `Outbox.lead`. A provider of two modules is two instances: let one module provide and export it.',
    )
  })

  test('a static method, and an option that there is not', () => {
    const descriptor: TypedPropertyDescriptor<() => void> = { value: () => {} }
    expect(() => Scheduled('a', EVERY_SECOND)(class {}, 'run', descriptor)).toThrow(
      /^Expected `@Scheduled` to stand at a method of instances/,
    )
    expect(() => OnLeadership('k', { tll: '5s' } as never)).toThrow(/^Expected the options to be among `ttl`/)
  })
})
