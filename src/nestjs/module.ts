import { type DynamicModule, Module, type ModuleMetadata } from '@nestjs/common'
import { DiscoveryModule, DiscoveryService } from '@nestjs/core'
import { checkObject, checkOptions, expected, parseFunction } from '../base/arguments.ts'
import { HOLD_RANGE, parseDuration } from '../base/duration.ts'
import { InvalidArgumentError } from '../errors.ts'
import { openServerLocks, type ServerLocks, type ServerLocksOptions } from '../http/index.ts'
import type { Locks } from '../index.ts'
import type { ScheduleOptions } from '../schedule/index.ts'
import { BackgroundWork } from './background-work.ts'
import { MODULE_LOCKS, ModuleLocks } from './module-locks.ts'
import { requestInterceptor } from './request-interceptor.ts'

/** The locks, to be injected: `@Inject(LOCKS) private readonly locks: Locks`. */
export const LOCKS: unique symbol = Symbol.for('holdfast locks')

/** Where the locks of an application come from, and how its jobs run. */
export interface HoldfastModuleOptions extends ServerLocksOptions {
  /**
   * For the jobs of `@Scheduled`: their time zone, grace, `onRun` and `onError`. A shutdown waits for as long as the grace for methods with
   * `@WithLock` outside of requests, too. Default: failures go to the logger of NestJS, and the grace is 10 s.
   */
  readonly schedule?: ScheduleOptions | undefined
}

/** Where `HoldfastModule.forRootAsync` gets its options from. */
export interface HoldfastModuleAsyncOptions extends Pick<ModuleMetadata, 'imports'> {
  /** The providers whose values `useFactory` gets. */
  readonly inject?: readonly Token[] | undefined
  /** Returns the options of {@link HoldfastModule.forRoot}. */
  readonly useFactory: (...injected: never[]) => HoldfastModuleOptions | Promise<HoldfastModuleOptions>
}

/** @inline */
type Token = string | symbol | (abstract new (...args: never[]) => unknown)

/**
 * Locks for a NestJS application, in all of its modules: `@Inject(LOCKS)`, and the decorators {@link WithLock},
 * {@link Scheduled} and {@link OnLeadership}. When the application closes, requests that wait for a lock are answered with
 * 503. Requests and other methods that have their lock finish, scheduled runs and leaders end, and then the locks are closed.
 * Call `app.enableShutdownHooks()` so that this happens at SIGTERM.
 *
 * ```ts
 * import { Module } from '@nestjs/common'
 * import { HoldfastModule } from 'holdfast/nestjs'
 *
 * @Module({ imports: [HoldfastModule.forRoot({ store: 'redis://localhost:6379', label: 'billing' })] })
 * export class AppModule {}
 * ```
 */
// biome-ignore lint/complexity/noStaticOnlyClass: NestJS knows a module by its class.
export class HoldfastModule {
  /** Either `{ store: url, … }` with the options of `connect`, or `{ locks }`. */
  static forRoot(options: HoldfastModuleOptions): DynamicModule {
    return moduleWith({ useFactory: () => options })
  }

  /** The options come from other providers, such as those of a configuration. */
  static forRootAsync(options: HoldfastModuleAsyncOptions): DynamicModule {
    checkOptions(options, ['imports', 'inject', 'useFactory'])
    const { inject, useFactory } = options
    parseFunction('useFactory', useFactory)
    if (inject !== undefined && !Array.isArray(inject)) throw expected('inject', 'an array', inject)
    return moduleWith(options)
  }
}

// As the decorator would: decorators of classes are for the application, which compiles them.
Module({})(HoldfastModule)

/** The module's state for an application. NestJS makes a module without options once in each application. */
interface Application {
  hasLocks: boolean
}
const APPLICATION: unique symbol = Symbol('holdfast application')
class ApplicationModule {}
Module({
  providers: [{ provide: APPLICATION, useFactory: (): Application => ({ hasLocks: false }) }],
  exports: [APPLICATION],
})(ApplicationModule)

/** The options of the module, and what LOCKS has opened with them: nothing where a test overrides LOCKS. */
interface Setup {
  readonly server: ServerLocksOptions
  readonly schedule: ScheduleOptions
  /** How long a shutdown waits for methods outside of requests. */
  readonly graceMs: number
  opened?: ServerLocks
}
const SETUP: unique symbol = Symbol('holdfast setup')

function moduleWith({ imports = [], inject = [], useFactory }: HoldfastModuleAsyncOptions): DynamicModule {
  const setup = {
    provide: SETUP,
    inject: [APPLICATION, ...inject],
    async useFactory(application: Application, ...injected: never[]): Promise<Setup> {
      if (application.hasLocks) {
        throw new InvalidArgumentError(
          'Expected HoldfastModule to be imported once in an application, as it is global, got it again.',
        )
      }
      application.hasLocks = true
      const options = await useFactory(...injected)
      checkObject(options)
      const { schedule = {}, ...server } = options
      return {
        server,
        schedule,
        graceMs: parseDuration('schedule.grace', schedule.grace ?? 10_000, HOLD_RANGE),
      }
    },
  }
  const locks = {
    provide: LOCKS,
    inject: [SETUP],
    async useFactory(setup: Setup): Promise<Locks> {
      setup.opened = await openServerLocks(setup.server)
      return setup.opened.locks
    },
  }
  // All others get the locks from LOCKS, so a test has nothing else to override.
  const moduleLocks = {
    provide: MODULE_LOCKS,
    inject: [LOCKS, SETUP],
    async useFactory(
      locks: Locks,
      { opened, graceMs, server: { statusCodes } }: Setup,
    ): Promise<ModuleLocks> {
      const own = opened ?? (await openServerLocks({ locks, statusCodes }))
      return new ModuleLocks(own, { statusCodes, graceMs })
    },
  }
  const background = {
    provide: BackgroundWork,
    inject: [MODULE_LOCKS, SETUP, DiscoveryService],
    useFactory: (locks: ModuleLocks, { schedule }: Setup, discovery: DiscoveryService): BackgroundWork =>
      new BackgroundWork(locks, discovery, schedule),
  }
  return {
    module: HoldfastModule,
    global: true,
    imports: [ApplicationModule, DiscoveryModule, ...imports],
    // The token of a global interceptor, APP_INTERCEPTOR of @nestjs/core.
    providers: [
      ...[setup, locks, moduleLocks, background],
      { provide: 'APP_INTERCEPTOR', useValue: requestInterceptor },
    ],
    exports: [MODULE_LOCKS, LOCKS],
  }
}
