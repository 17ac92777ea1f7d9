import type { Server } from 'node:http'
import { promisify } from 'node:util'
import {
  Controller,
  Get,
  Header,
  HttpException,
  type INestApplication,
  Inject,
  Injectable,
  Module,
  type ModuleMetadata,
  Param,
  Post,
  Scope,
} from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { ExecutionContextHost } from '@nestjs/core/helpers/execution-context-host.js'
import { ExpressAdapter } from '@nestjs/platform-express'
import { FastifyAdapter } from '@nestjs/platform-fastify'
import { Test } from '@nestjs/testing'
import { from, lastValueFrom, of } from 'rxjs'
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { createLocks, type Leadership, type Locks } from '../../src/index.ts'
import {
  currentLock,
  HoldfastModule,
  Idempotent,
  LOCKS,
  OnLeadership,
  WithLock,
} from '../../src/nestjs/index.ts'
import { requestInterceptor } from '../../src/nestjs/request-interceptor.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { errorOf, outcomeOf } from '../engine/scene.ts'
import { ScriptedStore } from '../engine/scripted-store.ts'
import { aborted, call, gate, roomsOf, twoProcesses, untilRooms } from '../http/scene.ts'
import { until } from '../servers/until.ts'

const platforms = [
  { name: 'Express', adapter: () => new ExpressAdapter() },
  { name: 'Fastify', adapter: () => new FastifyAdapter() },
] as const
/** The framework that serves the next application. */
let platform: (typeof platforms)[number] = platforms[0]

/** The meeting point of a test and the methods of its application. */
let stage: {
  begun: ReturnType<typeof gate<void>>
  end: ReturnType<typeof gate<void>>
  told: ReturnType<typeof gate<Error>>
}

@Injectable()
class Invoices {
  readonly prefix: string = 'invoice'

  @WithLock(function (this: Invoices, id: string) {
    return `${this.prefix}:${id}`
  })
  async pay(id: string): Promise<string> {
    const { lease } = currentLock()
    return `${id} under ${lease.key}`
  }

  /** A method that takes more arguments than its key. */
  @WithLock((from: string) => `account:${from}`)
  async transfer(from: string, to: string, amount: number): Promise<string> {
    return `${amount} from ${from} to ${to} under ${currentLock().lease.key}`
  }

  @WithLock('pay')
  async inner(): Promise<string> {
    return currentLock().lease.key
  }

  @WithLock('outer')
  async outer(): Promise<string[]> {
    const before = currentLock().lease.key
    return [before, await this.inner(), currentLock().lease.key]
  }
}

@Controller()
class InvoiceController {
  @Inject(Invoices) readonly invoices!: Invoices
  @Inject(LOCKS) readonly locks!: Locks

  @Post('/service/:id')
  service(@Param('id') id: string): Promise<string> {
    return this.invoices.pay(id)
  }

  @WithLock((id: string) => `invoice:${id}`)
  @Get('/above/:id')
  @Header('x-kept', 'yes')
  async above(@Param('id') id: string): Promise<string> {
    return `${id} under ${currentLock().lease.key}`
  }

  @Get('/below/:id')
  @Header('x-kept', 'yes')
  @WithLock((id: string) => `invoice:${id}`)
  async below(@Param('id') id: string): Promise<string> {
    return `${id} under ${currentLock().lease.key}`
  }

  @Get('/tell')
  @WithLock('pay', { wait: Number.POSITIVE_INFINITY })
  async tell(): Promise<void> {
    stage.begun.open()
    await aborted(currentLock().signal).catch((error: Error) => stage.told.open(error))
  }

  @Post('/slow')
  @WithLock('pay', { wait: Number.POSITIVE_INFINITY })
  async slow(): Promise<string> {
    stage.begun.open()
    await stage.end.opened
    return currentLock().lease.state
  }

  @Get('/impatient')
  @WithLock('pay', { wait: 20 })
  async impatient(): Promise<void> {
    expect.unreachable()
  }

  @Get('/teapot')
  @WithLock('pay')
  async teapot(): Promise<void> {
    throw new HttpException('teapot', 418)
  }

  @Get('/upstream')
  @WithLock('pay')
  async upstream(): Promise<void> {
    throw Object.assign(new Error('of another server'), {
      headers: { 'content-length': '3', 'set-cookie': 'secret', 'no header': 'at all' },
    })
  }

  @Get('/lost')
  @WithLock('pay')
  async lost(): Promise<void> {
    await this.locks.evictAll('pay', { reason: 'test' })
    await aborted(currentLock().signal)
  }

  @Get('/handled')
  async handled(): Promise<string> {
    return (await errorOf(this.impatient())).message
  }

  @Get('/unlocked')
  async unlocked(): Promise<string> {
    return (await errorOf(Promise.resolve().then(currentLock))).message
  }
}

async function serve(
  holdfast: ModuleMetadata['imports'],
  metadata: ModuleMetadata = { controllers: [InvoiceController], providers: [Invoices] },
): Promise<{ app: INestApplication; url: string }> {
  stage = { begun: gate(), end: gate(), told: gate<Error>() }
  class AppModule {}
  Module({ ...metadata, imports: [...(holdfast ?? []), ...(metadata.imports ?? [])] })(AppModule)
  const app = await NestFactory.create(AppModule, platform.adapter(), { logger: false, abortOnError: false })
  onTestFinished(() => app.close())
  await app.listen(0, '127.0.0.1')
  return { app, url: await app.getUrl() }
}

async function connectionsOf(app: INestApplication): Promise<number> {
  const server = app.getHttpServer() as Server
  return promisify(server.getConnections.bind(server))()
}

describe('@WithLock', () => {
  test('holds the key while a method of a provider runs, and releases it', async () => {
    const { locks, other } = twoProcesses()
    const { url } = await serve([HoldfastModule.forRoot({ locks })])
    const response = await call(`${url}/service/42`, { method: 'POST' }).answer
    expect([response.status, await response.text()]).toEqual([201, '42 under invoice:42'])
    expect(await roomsOf(other)).toEqual([])
  })

  test('may stand above and below NestJS’s decorators of a route', async () => {
    const { locks } = twoProcesses()
    const { url } = await serve([HoldfastModule.forRoot({ locks })])
    for (const place of ['above', 'below']) {
      const response = await call(`${url}/${place}/42`).answer
      expect([await response.text(), response.headers.get('x-kept')]).toEqual(['42 under invoice:42', 'yes'])
    }
  })

  test('tells each method its own lease, also where one calls another, and no other method', async () => {
    const { locks } = twoProcesses()
    const { app, url } = await serve([HoldfastModule.forRoot({ locks })])
    expect(await app.get(Invoices).transfer('a', 'b', 5)).toBe('5 from a to b under account:a')
    expect(await app.get(Invoices).outer()).toEqual(['outer', 'pay', 'outer'])
    expect(await (await call(`${url}/unlocked`).answer).text()).toBe(
      'Expected `currentLock()` to be called in a method with `@WithLock`, or by what that calls, got no lock there.',
    )
  })

  test('keeps the locks of two applications in one process apart, and subclasses with theirs', async () => {
    @Injectable()
    class Receipts extends Invoices {
      override readonly prefix = 'receipt'
    }
    const [one, two] = [twoProcesses(), twoProcesses()]
    const metadata = { providers: [Receipts] }
    const { app: first } = await serve([HoldfastModule.forRoot({ locks: one.locks })], metadata)
    const { app: second } = await serve([HoldfastModule.forRoot({ locks: two.locks })], metadata)
    const held = await one.other.acquire('pay')
    expect(await second.get(Receipts).inner()).toBe('pay')
    expect(await second.get(Receipts).pay('42')).toBe('42 under receipt:42')
    const waiting = first.get(Receipts).inner()
    await untilRooms(one.other, 'pay: 1 + 1')
    await held.release()
    expect(await waiting).toBe('pay')
  })

  test('is inherited, and is that of the method which has it where one is overridden', async () => {
    @Injectable()
    class Plain extends Invoices {
      override async inner(): Promise<string> {
        return `plain, then ${await super.inner()}`
      }
    }
    @Injectable()
    class Again extends Invoices {
      @WithLock('again')
      override async inner(): Promise<string> {
        return `${currentLock().lease.key}, then ${await super.inner()}`
      }
    }
    @Injectable()
    class Twice extends Invoices {
      @WithLock('pay')
      override async inner(): Promise<string> {
        return super.inner()
      }
    }
    const { locks } = twoProcesses()
    const { app } = await serve([HoldfastModule.forRoot({ locks })], { providers: [Plain, Again, Twice] })
    expect(await app.get(Plain).inner()).toBe('plain, then pay')
    expect(await app.get(Again).inner()).toBe('again, then pay')
    expect(await errorOf(app.get(Twice).inner())).toMatchObject({ code: 'deadlock' })
  })

  test('turns an error that a method throws at once into a rejection, and releases the key', async () => {
    @Injectable()
    class Hasty {
      @WithLock('pay')
      run(): Promise<never> {
        throw new Error('at once')
      }
    }
    const { locks, other } = twoProcesses()
    const { app } = await serve([HoldfastModule.forRoot({ locks })], { providers: [Hasty] })
    expect((await errorOf(app.get(Hasty).run())).message).toBe('at once')
    expect(await roomsOf(other)).toEqual([])
  })

  test('is for what a factory of the application has made, too, as soon as its modules are there', async () => {
    const under: string[] = []
    @Injectable()
    class Early {
      @Inject('invoices') readonly invoices!: Invoices
      async onModuleInit(): Promise<void> {
        under.push(await this.invoices.inner())
      }
    }
    const { locks } = twoProcesses()
    const invoices = { provide: 'invoices', useFactory: () => Object.freeze(new Invoices()) }
    await serve([HoldfastModule.forRoot({ locks })], { providers: [invoices, Early] })
    expect(under).toEqual(['pay'])
  })

  test('is for providers that are made for each request, too', async () => {
    @Injectable({ scope: Scope.REQUEST })
    class PerRequest extends Invoices {}
    @Controller()
    class Route {
      @Inject(PerRequest) readonly invoices!: PerRequest
      @Get('/') get(): Promise<string> {
        return this.invoices.pay('42')
      }
    }
    const { locks } = twoProcesses()
    const { url } = await serve([HoldfastModule.forRoot({ locks })], {
      controllers: [Route],
      providers: [PerRequest],
    })
    expect(await (await call(url).answer).text()).toBe('42 under invoice:42')
  })
})

describe.each(platforms)('a request on $name', (served) => {
  beforeEach(() => {
    platform = served
  })

  test('that waited in vain is answered with 409, in the words of the error', async () => {
    const { locks, other } = twoProcesses()
    const held = await other.acquire('pay')
    const { url } = await serve([HoldfastModule.forRoot({ locks })])
    const response = await call(`${url}/impatient`).answer
    expect(response.status).toBe(409)
    expect(await response.json()).toEqual({
      statusCode: 409,
      message: expect.stringMatching(/^"pay" was not free within \d+ ms/),
    })
    await held.release()
  })

  test('is answered as the application has chosen, and with its own exceptions', async () => {
    const { locks, other } = twoProcesses()
    const { url } = await serve([HoldfastModule.forRoot({ locks, statusCodes: { 'acquire-timeout': 423 } })])
    expect((await call(`${url}/teapot`).answer).status).toBe(418)
    const held = await other.acquire('pay')
    expect((await call(`${url}/impatient`).answer).status).toBe(423)
    await held.release()
  })

  test('whose work fails is not answered with the headers of that error', async () => {
    const { locks } = twoProcesses()
    const { url } = await serve([HoldfastModule.forRoot({ locks })])
    const response = await call(`${url}/upstream`).answer
    expect(response.status).toBe(500)
    expect(response.headers.get('set-cookie')).toBe(null)
    expect(await response.json()).toMatchObject({ statusCode: 500 })
  })

  test('whose lock is lost is answered once, with 500, and the requests behind it go on', async () => {
    const { locks, other } = twoProcesses()
    const { url } = await serve([HoldfastModule.forRoot({ locks })])
    expect((await call(`${url}/lost`).answer).status).toBe(500)
    expect((await call(`${url}/teapot`).answer).status).toBe(418)
    expect(await roomsOf(other)).toEqual([])
  })

  test('is answered with 503 when the store is away, and told to come back', async () => {
    const store = new ScriptedStore(memoryStore())
    const locks = createLocks(store)
    onTestFinished(() => locks.close())
    const { url } = await serve([HoldfastModule.forRoot({ locks })])
    store.always('fail')
    const response = await call(`${url}/impatient`).answer
    expect([response.status, response.headers.get('retry-after')]).toEqual([503, '1'])
    store.always('answer')
  })

  test('that has handled the error itself is not answered with its headers', async () => {
    const store = new ScriptedStore(memoryStore())
    const locks = createLocks(store)
    onTestFinished(() => locks.close())
    const { url } = await serve([HoldfastModule.forRoot({ locks })])
    store.always('fail')
    const response = await call(`${url}/handled`).answer
    expect([response.status, response.headers.get('retry-after')]).toEqual([200, null])
    expect(await response.text()).toMatch(/^"pay" was not acquired /)
    store.always('answer')
  })

  test('whose client hangs up gives up its place, or tells the work', async () => {
    const { locks, other } = twoProcesses()
    const { url } = await serve([HoldfastModule.forRoot({ locks })])
    const first = call(`${url}/tell`)
    await stage.begun.opened
    const second = call(`${url}/slow`, { method: 'POST', body: 'a body that is read' })
    await untilRooms(other, 'pay: 1 + 1')
    second.hangUp()
    await untilRooms(other, 'pay: 1 + 0')
    first.hangUp()
    expect(await stage.told.opened).toMatchObject({ name: 'AbortError' })
    await untilRooms(other)
  })

  test('finds its response also behind the reply of the Fastify adapter, and none where there is no HTTP', async () => {
    const { locks, other } = twoProcesses()
    const { app } = await serve([HoldfastModule.forRoot({ locks })])
    const closing: (() => void)[] = []
    const raw = {
      writableEnded: false,
      once: (_: 'close', listener: () => void) => closing.push(listener),
    }
    const held = await other.acquire('pay')
    const runIn = (type: string) => {
      const context = new ExecutionContextHost([{}, { raw }])
      context.setType(type)
      const results: Promise<unknown>[] = []
      const handle = () => {
        results.push(app.get(Invoices).inner())
        return of(undefined)
      }
      const handled = requestInterceptor.intercept(context, { handle })
      return { handled: Promise.resolve(handled).then(lastValueFrom), result: results[0] as Promise<unknown> }
    }
    const [http, message] = [runIn('http'), runIn('rpc')]
    await Promise.all([http.handled, message.handled])
    await untilRooms(other, 'pay: 1 + 2')
    for (const close of closing) close()
    expect(await errorOf(http.result)).toMatchObject({ name: 'AbortError' })
    await held.release()
    expect(await message.result).toBe('pay')
  })
})

describe('a call that is no plain HTTP request', () => {
  const response = () => {
    const closing: (() => void)[] = []
    const once = (_: 'close', listener: () => void) => closing.push(listener)
    return { writableEnded: false, once, close: () => closing.map((listener) => listener()) }
  }

  /** Calls the handler as NestJS does, and returns its result. */
  async function handled(args: unknown[], type: string, handle: () => Promise<unknown>): Promise<unknown> {
    const context = new ExecutionContextHost(args)
    context.setType(type)
    return lastValueFrom(await requestInterceptor.intercept(context, { handle: () => from(handle()) }))
  }

  test.each([
    ['res', (raw: object) => ({ res: raw })],
    ['req.res', (raw: object) => ({ req: { res: raw } })],
    ['reply', (raw: object) => ({ reply: { raw } })],
  ])('ends with the client in GraphQL, where the context has `%s`', async (_, contextWith) => {
    const { locks, other } = twoProcesses()
    const { app } = await serve([HoldfastModule.forRoot({ locks })])
    const held = await other.acquire('pay')
    const raw = response()
    const inner = () => app.get(Invoices).inner()
    const failed = errorOf(handled([{}, {}, contextWith(raw), {}], 'graphql', inner))
    await untilRooms(other, 'pay: 1 + 1')
    raw.close()
    expect(await failed).toMatchObject({ name: 'AbortError' })
    await held.release()
  })

  test('has no response where a library calls a handler with arguments of its own', async () => {
    const { locks } = twoProcesses()
    const { app } = await serve([HoldfastModule.forRoot({ locks })])
    for (const args of [[], [{}], [{}, 'text'], [{}, null], [{}, { id: 7 }]]) {
      expect(await handled(args, 'http', () => app.get(Invoices).inner())).toBe('pay')
      expect(await handled(args, 'graphql', () => app.get(Invoices).inner())).toBe('pay')
    }
  })

  test('goes on without the request that has started it once that is answered', async () => {
    const { locks } = twoProcesses()
    const { app } = await serve([HoldfastModule.forRoot({ locks })])
    const raw = response()
    const [answered, result] = [gate(), gate<unknown>()]
    await handled([{}, raw], 'http', async () => {
      void answered.opened.then(() => app.get(Invoices).inner()).then(result.open, result.open)
    })
    raw.close()
    answered.open()
    expect(await result.opened).toBe('pay')
  })

  test('is refused by `@Idempotent` that requires a key, which it cannot have', async () => {
    const ran: string[] = []
    class Resolver {
      @Idempotent({ remember: '1h', scope: () => 'a', required: true })
      required() {
        ran.push('required')
      }

      @Idempotent({ remember: '1h', scope: () => 'a' })
      optional() {
        ran.push('optional')
      }
    }
    const called = async (name: 'required' | 'optional'): Promise<unknown> => {
      const [Interceptor] = Reflect.getMetadata('__interceptors__', Resolver.prototype[name])
      const interceptor = new Interceptor({ idempotent: () => () => expect.unreachable() })
      const context = new ExecutionContextHost([{}, {}, {}, {}])
      context.setType('graphql')
      return lastValueFrom(await interceptor.intercept(context, { handle: () => of(new Resolver()[name]()) }))
    }
    expect((await errorOf(called('required'))).message).toContain('to be at HTTP requests, got "graphql"')
    await called('optional')
    expect(ran).toEqual(['optional'])
  })
})

describe.each(platforms)('the module on $name', (served) => {
  beforeEach(() => {
    platform = served
  })

  test('closes in the middle of requests: waiting ones are answered, and running ones finish first', async () => {
    const { app, url } = await serve([HoldfastModule.forRoot({ store: 'memory:', label: 'billing' })])
    const locks = app.get<Locks>(LOCKS)
    const working = call(`${url}/slow`, { method: 'POST' }).answer
    await stage.begun.opened
    const waiting = call(`${url}/slow`, { method: 'POST' }).answer
    await untilRooms(locks, 'pay: 1 + 1')
    const closed = app.close()
    const refused = await waiting
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '1'])
    expect(await outcomeOf(closed)).toBe('pending')
    stage.end.open()
    expect(await (await working).text()).toBe('held')
    await closed
    expect(await errorOf(locks.acquire('pay'))).toMatchObject({ code: 'closed' })
  })

  test('closes with an answer to waiting requests at once, although a leader takes its time to end', async () => {
    const [leads, end] = [gate<Leadership>(), gate()]
    @Injectable()
    class Slow {
      @OnLeadership('slow')
      async lead(leadership: Leadership): Promise<void> {
        leads.open(leadership)
        await end.opened
      }
    }
    const { app, url } = await serve([HoldfastModule.forRoot({ store: 'memory:' })], {
      controllers: [InvoiceController],
      providers: [Invoices, Slow],
    })
    const working = call(`${url}/slow`, { method: 'POST' }).answer
    await Promise.all([stage.begun.opened, leads.opened])
    const waiting = call(`${url}/slow`, { method: 'POST' }).answer
    await until('it waits', async () => (await app.get<Locks>(LOCKS).peek('pay'))?.queue.length === 1)
    const closed = app.close()
    expect((await waiting).status).toBe(503)
    expect(await outcomeOf(closed)).toBe('pending')
    stage.end.open()
    end.open()
    expect(await (await working).text()).toBe('held')
    await closed
  })

  test('closes behind the work of a client that has gone, which may still write', async () => {
    const { app, url } = await serve([HoldfastModule.forRoot({ store: 'memory:' })])
    const locks = app.get<Locks>(LOCKS)
    const atEnd = gate<string>()
    const lost = gate()
    locks.on('released', ({ key }) => atEnd.open(`${key} is given back`))
    locks.on('lost', () => lost.open())
    const { hangUp } = call(`${url}/slow`, { method: 'POST' })
    await stage.begun.opened
    hangUp()
    await until('nobody is connected', () => connectionsOf(app).then((count) => count === 0))
    const closed = app.close()
    expect(await outcomeOf(closed)).toBe('pending')
    expect(await outcomeOf(Promise.race([lost.opened, atEnd.opened]))).toBe('pending')
    stage.end.open()
    expect(await atEnd.opened).toBe('pay is given back')
    await closed
  })

  test('closes behind methods outside of requests: running ones finish, waiting and later ones are rejected', async () => {
    const [begun, end] = [gate(), gate()]
    @Injectable()
    class Consumer {
      @WithLock('job', { wait: Number.POSITIVE_INFINITY })
      async handle(): Promise<string> {
        begun.open()
        await end.opened
        return currentLock().lease.state
      }
    }
    const { app } = await serve([HoldfastModule.forRoot({ store: 'memory:' })], { providers: [Consumer] })
    const [consumer, locks] = [app.get(Consumer), app.get<Locks>(LOCKS)]
    const working = consumer.handle()
    await begun.opened
    const waiting = consumer.handle()
    await untilRooms(locks, 'job: 1 + 1')
    const closed = app.close()
    expect(await errorOf(waiting)).toMatchObject({ code: 'closed' })
    expect(await errorOf(consumer.handle())).toMatchObject({ code: 'closed' })
    expect(await outcomeOf(closed)).toBe('pending')
    end.open()
    expect(await working).toBe('held')
    await closed
    expect(await errorOf(locks.acquire('job'))).toMatchObject({ code: 'closed' })
  })

  test('waits no longer than the grace for methods outside of requests, which may wait for the shutdown themselves', async () => {
    const ends: string[] = []
    const begun = Array.from({ length: 3 }, gate)
    let close = (): Promise<void> => Promise.resolve()
    @Injectable()
    class Consumer {
      @WithLock('loop')
      async loop(): Promise<void> {
        const { signal } = currentLock()
        begun[0]?.open()
        await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()))
        ends.push('its signal has aborted')
      }
      @WithLock('inner')
      async inner(): Promise<void> {
        begun[1]?.open()
        const waiting = app.get<Locks>(LOCKS).acquire('taken', { wait: Number.POSITIVE_INFINITY })
        ends.push((await errorOf(waiting)).message)
      }
      @WithLock('self')
      async self(): Promise<void> {
        begun[2]?.open()
        await close()
        ends.push('it has closed the application')
      }
    }
    const { app } = await serve(
      [HoldfastModule.forRoot({ store: 'memory:', schedule: { grace: '200ms' } })],
      { providers: [Consumer] },
    )
    const [consumer, locks] = [app.get(Consumer), app.get<Locks>(LOCKS)]
    close = () => app.close()
    await locks.acquire('taken')
    const calls = [consumer.loop(), consumer.inner()]
    await Promise.all(begun.slice(0, 2).map((each) => each.opened))
    calls.push(consumer.self())
    await Promise.allSettled(calls)
    expect(ends.toSorted()).toEqual([
      expect.stringContaining('These locks were closed'),
      'it has closed the application',
      'its signal has aborted',
    ])
  })

  test('leaves locks open that were given to it', async () => {
    const { locks } = twoProcesses()
    const { app } = await serve([HoldfastModule.forRoot({ locks })])
    await app.close()
    expect(await locks.withLock('pay', () => 'open')).toBe('open')
  })

  test('is refused the second time in an application, where each would have locks of its own', async () => {
    const one = HoldfastModule.forRoot({ store: 'memory:' })
    @Module({ imports: [HoldfastModule.forRoot({ store: 'memory:' })] })
    class Feature {}
    expect((await errorOf(serve([one, Feature]))).message).toBe(
      'Expected HoldfastModule to be imported once in an application, as it is global, got it again.',
    )
    // The same module, imported twice, counts once.
    @Module({ imports: [one] })
    class Same {}
    expect((await serve([one, Same])).url).toMatch(/^http:/)
  })

  test('is left in peace by hooks and methods of the end of the application that still lock', async () => {
    const { locks, other } = twoProcesses()
    const tidied: string[] = []
    @Injectable()
    class Tidy extends Invoices {
      async beforeApplicationShutdown(): Promise<void> {
        tidied.push(await this.inner())
      }
    }
    const { app } = await serve([HoldfastModule.forRoot({ locks })], { providers: [Tidy] })
    await app.close()
    expect([tidied, await roomsOf(other)]).toEqual([['pay'], []])
  })

  test('may take its options from other providers', async () => {
    @Injectable()
    class Settings {
      readonly store = 'memory:'
    }
    @Module({ providers: [Settings], exports: [Settings] })
    class SettingsModule {}
    const { app, url } = await serve([
      HoldfastModule.forRootAsync({
        imports: [SettingsModule],
        inject: [Settings],
        useFactory: async ({ store }: Settings) => ({ store }),
      }),
    ])
    expect(await (await call(`${url}/service/42`, { method: 'POST' }).answer).text()).toBe(
      '42 under invoice:42',
    )
    await app.close()
  })

  test('takes other locks in a test, which override LOCKS, and opens no store', async () => {
    const { locks, other } = twoProcesses()
    const holdfast = HoldfastModule.forRoot({ store: 'redis://no-such-host.invalid' })
    const testing = Test.createTestingModule({ imports: [holdfast], providers: [Invoices] })
    const app = await testing.overrideProvider(LOCKS).useValue(locks).compile()
    await app.init()
    const held = await other.acquire('pay')
    const waiting = app.get(Invoices).inner()
    await untilRooms(other, 'pay: 1 + 1')
    await held.release()
    expect(await waiting).toBe('pay')
    await app.close()
    expect(await locks.withLock('pay', () => 'open')).toBe('open')
  })

  test('serves an application without HTTP', async () => {
    @Module({ imports: [HoldfastModule.forRoot({ store: 'memory:' })], providers: [Invoices] })
    class Worker {}
    const app = await NestFactory.createApplicationContext(Worker, { logger: false })
    const locks = app.get<Locks>(LOCKS)
    const held = await locks.acquire('pay')
    const waiting = app.get(Invoices).inner()
    await untilRooms(locks, 'pay: 1 + 1')
    const closed = app.close()
    expect(await errorOf(waiting)).toMatchObject({ code: 'closed' })
    await closed
    expect(held.signal.aborted).toBe(true)
  })
})

describe('bad input', () => {
  test.each<[string, Parameters<typeof HoldfastModule.forRoot>[0]]>([
    ['`store` to be a URL such as redis://localhost:6379, or `locks` to be given, got neither.', {}],
    ['`url` to begin with memory:', { store: 'mysql://localhost' }],
    ["`statusCodes['closed']` to be a whole number", { store: 'memory:', statusCodes: { closed: 1 } }],
    ['the options to be an object, got undefined', undefined as never],
    ['`url` to be a string, got number.', { store: 5 as never }],
    ['the options to be among `ttl`', { store: 'memory:', tll: '5s' } as never],
  ])('expected %s', async (message, options) => {
    const error = await errorOf(serve([HoldfastModule.forRoot(options)]))
    expect(error).toMatchObject({ code: 'invalid-argument' })
    expect(error.message).toContain(`Expected ${message}`)
  })

  test.each<[string, unknown]>([
    ['the options to be an object, got undefined', undefined],
    ['`useFactory` to be a function, got undefined', {}],
    ['the options to be among `imports`, `inject`, `useFactory`, got `useClass`', { useClass: Invoices }],
    ['`inject` to be an array, got a function', { inject: Invoices, useFactory: () => ({}) }],
    ['the options to be an object, got undefined', { useFactory: () => undefined }],
  ])('of forRootAsync: expected %s', async (message, options) => {
    const make = async () => serve([HoldfastModule.forRootAsync(options as never)])
    const error = await errorOf(make())
    expect(error).toMatchObject({ code: 'invalid-argument' })
    expect(error.message).toContain(`Expected ${message}`)
  })

  test('a decorator at a static method, or at one whose values come later, is refused: nothing would be locked', () => {
    const decorate = WithLock('pay') as (target: unknown, name: string, descriptor: unknown) => void
    expect(() => decorate(class {}, 'pay', { value: async () => {} })).toThrow(
      'Expected `@WithLock` to stand at a method of instances, which have the locks, got a static one.',
    )
    const message =
      'Expected `@WithLock` to stand at a method that returns a promise, got a generator, whose work comes after the lock.'
    expect(() => decorate({}, 'pay', { value: async function* () {} })).toThrow(message)
    expect(() => decorate({}, 'pay', { value: function* () {} })).toThrow(message)
  })

  test('options of a decorator that are wrong are refused when the class is made', () => {
    expect(() => WithLock('pay', { tll: '5s' } as never)).toThrow('got `tll`')
    expect(() => WithLock('pay', '2s' as never)).toThrow('Expected the options to be an object, got "2s".')
  })

  test('a decorator without a key, or at no method, is refused when the class is made', () => {
    const at =
      (decorate: (target: object, name: string, descriptor: never) => void, descriptor: unknown) => () =>
        decorate({}, 'pay', descriptor as never)
    expect(() => WithLock('')).toThrow(
      'Expected the key of `@WithLock` to be a text or a function that makes one, got "".',
    )
    expect(() => WithLock(42 as never)).toThrow('got 42.')
    const message = 'Expected `@WithLock` to stand at a method, compiled with `experimentalDecorators`'
    expect(at(WithLock('pay') as never, undefined)).toThrow(message)
    expect(at(WithLock('pay') as never, { get: () => 1 })).toThrow(message)
    // A standard decorator is called with these arguments.
    expect(() => (WithLock('pay') as (method: unknown, context: unknown) => void)(() => 1, {})).toThrow(
      message,
    )
  })

  test('a method that is not async, or has other arguments than the key, does not compile', () => {
    class Mistakes {
      // @ts-expect-error: what is not awaited cannot be locked.
      @WithLock('pay')
      sync(): string {
        return ''
      }

      // @ts-expect-error: the key is made of a number.
      @WithLock((id: number) => `invoice:${id}`)
      async pay(id: string): Promise<string> {
        return id
      }
    }
    expect(new Mistakes()).toBeInstanceOf(Mistakes)
  })

  test('an instance that NestJS has not made, or an application without the module, is told so', async () => {
    expect((await errorOf(new Invoices().pay('42'))).message).toBe(
      'Expected `pay` to be called on an instance that NestJS has made, with HoldfastModule imported, got one without locks.',
    )
    expect((await errorOf(serve([]))).message).toContain('Symbol(holdfast module)')
  })

  test('a key that is no text, or a function that throws, is an error of the call, in which nothing is locked', async () => {
    const keys: ((...args: unknown[]) => unknown)[] = [
      () => undefined,
      async () => 'pay',
      () => {
        throw new Error('no key')
      },
    ]
    const methods = keys.map((key) => {
      class Wrong {
        @WithLock(key as () => string)
        async run(): Promise<never> {
          return expect.unreachable()
        }
      }
      Injectable()(Wrong)
      return Wrong
    })
    const { locks, other } = twoProcesses()
    const { app } = await serve([HoldfastModule.forRoot({ locks })], { providers: methods })
    const messages = await Promise.all(
      methods.map(async (one) => (await errorOf(app.get(one).run())).message),
    )
    expect(messages).toEqual([
      'Expected `key` to be a string with at least one character, got undefined.',
      'Expected `key` to be a string with at least one character, got an object (Promise).',
      'no key',
    ])
    expect(await roomsOf(other)).toEqual([])
  })

  test('a key that is none is an error of the call', async () => {
    const { locks } = twoProcesses()
    const { app } = await serve([HoldfastModule.forRoot({ locks })])
    class Wrong extends Invoices {
      override readonly prefix = '\0'
    }
    const wrong = Object.assign(app.get(Invoices), { prefix: new Wrong().prefix })
    expect(await errorOf(wrong.pay('42'))).toMatchObject({ code: 'invalid-argument' })
  })
})
