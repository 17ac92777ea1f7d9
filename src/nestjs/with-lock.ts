import { Inject } from '@nestjs/common'
import { checkOptions } from '../base/arguments.ts'
import { show } from '../base/duration.ts'
import { InvalidArgumentError } from '../errors.ts'
import type { CallbackOptions } from '../index.ts'
import { locksGivenTo, MODULE_LOCKS, type ModuleLocks } from './module-locks.ts'

/** The key, or how it comes from the arguments of the method, whose `this` it has. It may leave out the last ones. */
export type WithLockKey<Arguments extends unknown[]> = string | ((...args: Arguments) => string)

/** For an async method that takes these arguments, and perhaps more. */
export type WithLockDecorator<Arguments extends unknown[]> = <
  Method extends (...args: [...Arguments, ...never[]]) => Promise<unknown>,
>(
  target: object,
  name: string | symbol,
  descriptor: TypedPropertyDescriptor<Method>,
) => void

/**
 * Method decorator for any provider or controller: the method runs while the key is held, over all instances of the
 * application, and rejects as `locks.withLock` does. Inside of it, {@link currentLock} has the lease. When it runs for an HTTP
 * request, the wait ends when the client goes away, and the signal of `currentLock()` aborts.
 *
 * The method must be async. What it returns to be read later, such as a stream or an Observable, is read without the key. May
 * stand above or below decorators of NestJS.
 *
 * ```ts
 * import { Injectable } from '@nestjs/common'
 * import { currentLock, WithLock } from 'holdfast/nestjs'
 *
 * @Injectable()
 * export class Invoices {
 *   @WithLock((id: string) => `invoice:${id}`, { wait: '2s' })
 *   async pay(id: string): Promise<string> {
 *     const { lease, signal } = currentLock()
 *     await fetch('https://pay.example/', { method: 'POST', body: id, signal })
 *     return `paid under fence ${lease.fence}`
 *   }
 * }
 * ```
 */
export function WithLock<Arguments extends unknown[] = []>(
  key: WithLockKey<Arguments>,
  options?: CallbackOptions,
): WithLockDecorator<Arguments> {
  if (typeof key !== 'function' && (typeof key !== 'string' || key === '')) {
    throw new InvalidArgumentError(
      `Expected the key of \`@WithLock\` to be a text or a function that makes one, got ${show(key)}.`,
    )
  }
  if (options !== undefined) checkOptions(options, Object.keys(TAKES))
  return (target, _name, descriptor) => {
    const method = descriptor?.value
    checkMethod(method)
    if (typeof target === 'function') {
      throw new InvalidArgumentError(
        'Expected `@WithLock` to stand at a method of instances, which have the locks, got a static one.',
      )
    }
    inject(target)
    const locked = lockedMethod(method as unknown as AnyMethod, key as WithLockKey<unknown[]>, options)
    Object.defineProperty(locked, 'name', { value: method.name })
    copyMetadata(method, locked)
    descriptor.value = locked as unknown as typeof method
  }
}

const TAKES: Readonly<Record<keyof CallbackOptions, true>> = {
  ttl: true,
  wait: true,
  renew: true,
  maxHold: true,
  minHold: true,
  lockDelay: true,
  maxWaiting: true,
  storeTimeout: true,
  signal: true,
  reentrant: true,
}

function checkMethod(method: unknown): asserts method is AnyMethod {
  if (typeof method !== 'function') {
    throw new InvalidArgumentError(
      'Expected `@WithLock` to stand at a method, compiled with `experimentalDecorators` as NestJS needs it.',
    )
  }
  if (/Generator/.test(Object.prototype.toString.call(method))) {
    throw new InvalidArgumentError(
      'Expected `@WithLock` to stand at a method that returns a promise, got a generator, whose work comes after the lock.',
    )
  }
}

type AnyMethod = (...args: unknown[]) => unknown

/** Where the instance has what NestJS gave it. */
const INJECTED: unique symbol = Symbol('holdfast')

interface Injected {
  readonly [INJECTED]?: ModuleLocks
}

/** As `@Inject` on a property does, so that each application of a process has its own. */
function inject(target: object): void {
  Inject(MODULE_LOCKS)(target, INJECTED)
}

function lockedMethod(method: AnyMethod, key: WithLockKey<unknown[]>, options: CallbackOptions | undefined) {
  return async function (this: Injected, ...args: unknown[]): Promise<unknown> {
    const locks = this[INJECTED] ?? locksGivenTo(this)
    if (locks === undefined) {
      throw new InvalidArgumentError(
        `Expected \`${method.name}\` to be called on an instance that NestJS has made, with HoldfastModule imported, got one without locks.`,
      )
    }
    const name = typeof key === 'function' ? key.apply(this, args) : key
    return locks.hold(name, options, () => method.apply(this, args))
  }
}

/** NestJS keeps what `@Get()` and the others say on the function itself. */
function copyMetadata(from: object, to: object): void {
  const { getOwnMetadataKeys, getOwnMetadata, defineMetadata } = Reflect as unknown as ReflectMetadata
  for (const key of getOwnMetadataKeys(from)) defineMetadata(key, getOwnMetadata(key, from), to)
}

/** Metadata of `reflect-metadata`, which NestJS brings along. */
interface ReflectMetadata {
  getOwnMetadataKeys(target: object): readonly unknown[]
  getOwnMetadata(key: unknown, target: object): unknown
  defineMetadata(key: unknown, value: unknown, target: object): void
}
