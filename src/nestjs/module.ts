import { type DynamicModule, Module, type ModuleMetadata } from '@nestjs/common'
import { checkOptions, expected, parseFunction } from '../base/arguments.ts'
import { InvalidArgumentError } from '../errors.ts'
import type { ServerLocksOptions } from '../http/index.ts'
import type { Locks } from '../index.ts'
import { MODULE_LOCKS, ModuleLocks } from './module-locks.ts'
import { rememberResponse } from './running.ts'

/** The locks, to be injected: `@Inject(LOCKS) private readonly locks: Locks`. */
export const LOCKS: unique symbol = Symbol('holdfast locks')

export interface HoldfastModuleAsyncOptions extends Pick<ModuleMetadata, 'imports'> {
  /** What `useFactory` is given. */
  readonly inject?: readonly Token[] | undefined
  readonly useFactory: (...injected: never[]) => ServerLocksOptions | Promise<ServerLocksOptions>
}

type Token = string | symbol | (abstract new (...args: never[]) => unknown)

/**
 * Locks for a NestJS application, in all of its modules: `@Inject(LOCKS)`, and the decorator {@link WithLock}. When the application
 * closes, whoever waits for a lock is answered with 503, requests that have theirs are finished, and then the locks are closed;
 * call `app.enableShutdownHooks()` for that to happen at SIGTERM.
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
  static forRoot(options: ServerLocksOptions): DynamicModule {
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

/** What is known of an application: NestJS makes a module without options once in each. */
interface Application {
  hasLocks: boolean
}
const APPLICATION: unique symbol = Symbol('holdfast application')
class ApplicationModule {}
Module({
  providers: [{ provide: APPLICATION, useFactory: (): Application => ({ hasLocks: false }) }],
  exports: [APPLICATION],
})(ApplicationModule)

function moduleWith({ imports = [], inject = [], useFactory }: HoldfastModuleAsyncOptions): DynamicModule {
  const moduleLocks = {
    provide: MODULE_LOCKS,
    inject: [APPLICATION, ...inject],
    async useFactory(application: Application, ...injected: never[]): Promise<ModuleLocks> {
      if (application.hasLocks) {
        throw new InvalidArgumentError(
          'Expected HoldfastModule to be imported once in an application, as it is global, got it again.',
        )
      }
      application.hasLocks = true
      return ModuleLocks.open(await useFactory(...injected))
    },
  }
  const locks = {
    provide: LOCKS,
    inject: [MODULE_LOCKS],
    useFactory: ({ locks }: ModuleLocks): Locks => locks,
  }
  return {
    module: HoldfastModule,
    global: true,
    imports: [ApplicationModule, ...imports],
    // The token of a global interceptor, APP_INTERCEPTOR of @nestjs/core.
    providers: [moduleLocks, locks, { provide: 'APP_INTERCEPTOR', useValue: rememberResponse }],
    exports: [MODULE_LOCKS, LOCKS],
  }
}
