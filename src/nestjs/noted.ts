import { InvalidArgumentError } from '../errors.ts'

/** A method at which a decorator stands, bound to its instance, and what the decorator says. */
export interface NotedMethod<Note> {
  /** `Reports.send`, for messages. */
  readonly title: string
  readonly note: Note
  readonly call: (argument: unknown) => unknown
}

/** What one decorator writes at methods, and finds at instances. */
export interface Noted<Note> {
  add(target: object, method: unknown, note: Note): void
  of(instance: object): readonly NotedMethod<Note>[]
}

/** Notes are metadata of the function, as those of NestJS are. So `@WithLock` at the same method keeps them. */
export function noted<Note>(decorator: string, key: symbol): Noted<Note> {
  const notesAt = (method: object): readonly Note[] =>
    (reflect.getOwnMetadata(key, method) ?? []) as readonly Note[]
  return {
    add(target, method, note) {
      if (typeof method !== 'function' || typeof target === 'function') {
        throw new InvalidArgumentError(
          `Expected \`${decorator}\` to stand at a method of instances, compiled with \`experimentalDecorators\` as NestJS needs it.`,
        )
      }
      reflect.defineMetadata(key, [...notesAt(method), note], method)
    },
    of(instance) {
      return methodNames(instance).flatMap((name) => {
        const method = (instance as Record<string | symbol, unknown>)[name]
        if (typeof method !== 'function') return []
        const title = `${instance.constructor?.name ?? 'an object'}.${String(name)}`
        return notesAt(method).map((note) => ({
          title,
          note,
          call: (argument: unknown) => method.call(instance, argument),
        }))
      })
    },
  }
}

/** Of the classes of the instance. A getter may do anything when it is read, so none is. */
function methodNames(instance: object): readonly (string | symbol)[] {
  const names = new Set<string | symbol>()
  let prototype: unknown = Object.getPrototypeOf(instance)
  while (typeof prototype === 'object' && prototype !== null && prototype !== Object.prototype) {
    for (const name of Reflect.ownKeys(prototype)) {
      const isMethod = typeof Object.getOwnPropertyDescriptor(prototype, name)?.value === 'function'
      if (isMethod && name !== 'constructor') names.add(name)
    }
    prototype = Object.getPrototypeOf(prototype)
  }
  return [...names]
}

/** Of `reflect-metadata`, which NestJS brings along. */
const reflect = Reflect as unknown as {
  getOwnMetadata(key: unknown, target: object): unknown
  defineMetadata(key: unknown, value: unknown, target: object): void
}
