import type { HeldLock } from './lock-manager.ts'

export type LockMode = 'exclusive' | 'shared'

export interface LockOptions {
  /** Default: `exclusive`. */
  readonly mode?: LockMode | undefined
  /** Call back with `null` instead of waiting. Default: false. */
  readonly ifAvailable?: boolean | undefined
  /** Take the lock from whoever holds it, and before those who wait. Default: false. */
  readonly steal?: boolean | undefined
  /** Ends the wait: the request rejects with its reason. */
  readonly signal?: AbortSignal | undefined
}

export interface Request<T> {
  readonly name: string
  readonly options: {
    readonly mode: LockMode
    readonly ifAvailable: boolean
    readonly steal: boolean
    readonly signal: AbortSignal | undefined
  }
  readonly callback: (lock: HeldLock | null) => T | Promise<T>
}

/**
 * The arguments as the specification takes them: converted as WebIDL does, and refused in the order of the algorithm
 * (https://w3c.github.io/web-locks/#dom-lockmanager-request).
 */
export function parseRequest<T>(args: readonly unknown[]): Request<T> {
  const [first, second, third] = args
  const callback = args.length > 2 ? third : second
  if (args.length < 2) throw new TypeError(`Expected 2 arguments or more, got ${args.length}.`)
  const name = String(first)
  const given = dictionaryOf(args.length > 2 ? second : undefined)
  const mode = given.mode === undefined ? 'exclusive' : String(given.mode)
  if (mode !== 'exclusive' && mode !== 'shared') {
    throw new TypeError(`Expected \`mode\` to be 'exclusive' or 'shared', got ${JSON.stringify(mode)}.`)
  }
  const { signal } = given
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw new TypeError('Expected `signal` to be an AbortSignal.')
  }
  if (typeof callback !== 'function') throw new TypeError('Expected the last argument to be a function.')
  const options = {
    mode,
    ifAvailable: Boolean(given.ifAvailable),
    steal: Boolean(given.steal),
    signal,
  } as const
  if (name.startsWith('-')) throw notSupported('a name that does not begin with "-"', `${name}`)
  if (options.steal && options.ifAvailable) throw notSupported('`steal` or `ifAvailable`', 'both')
  if (options.steal && mode !== 'exclusive') throw notSupported('`steal` with mode "exclusive"', mode)
  if (signal !== undefined && (options.steal || options.ifAvailable)) {
    throw notSupported('`signal` without `steal` and `ifAvailable`', 'both')
  }
  signal?.throwIfAborted()
  if (name.length > LONGEST_NAME) {
    throw notSupported(`a name of at most ${LONGEST_NAME} characters`, `${name.length}`)
  }
  return { name, options, callback: callback as Request<T>['callback'] }
}

export const LONGEST_NAME = 960

function dictionaryOf(value: unknown): { readonly [K in keyof LockOptions]?: unknown } {
  if (value === undefined || value === null) return {}
  if (typeof value !== 'object' && typeof value !== 'function') {
    throw new TypeError('Expected the options to be an object.')
  }
  return value
}

function notSupported(expected: string, got: string): DOMException {
  return new DOMException(`Expected ${expected}, got ${got}.`, 'NotSupportedError')
}
