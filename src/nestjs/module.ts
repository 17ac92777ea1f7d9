import { type DynamicModule, Module, type ModuleMetadata, type Provider } from '@nestjs/common'
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
    return moduleWith({ provide: MODULE_LOCKS, useFactory: () => ModuleLocks.open(options) })
  }

  /** The options come from other providers, such as those of a configuration. */
  static forRootAsync({ imports, inject, useFactory }: HoldfastModuleAsyncOptions): DynamicModule {
    const open = async (...injected: never[]) => ModuleLocks.open(await useFactory(...injected))
    return moduleWith({ provide: MODULE_LOCKS, inject: [...(inject ?? [])], useFactory: open }, imports)
  }
}

// As the decorator would: decorators of classes are for the application, which compiles them.
Module({})(HoldfastModule)

function moduleWith(moduleLocks: Provider, imports: ModuleMetadata['imports'] = []): DynamicModule {
  const locks = {
    provide: LOCKS,
    inject: [MODULE_LOCKS],
    useFactory: ({ locks }: ModuleLocks): Locks => locks,
  }
  return {
    module: HoldfastModule,
    global: true,
    imports,
    // The token of a global interceptor, APP_INTERCEPTOR of @nestjs/core.
    providers: [moduleLocks, locks, { provide: 'APP_INTERCEPTOR', useValue: rememberResponse }],
    exports: [MODULE_LOCKS, LOCKS],
  }
}
