/** `exclusive`: one holder. `shared`: any number of holders that are all `shared`. */
export type LockMode = 'exclusive' | 'shared'

/** The `Lock` of the specification, with what a lock across machines has besides. */
export interface HeldLock {
  /** The name of the lock. */
  readonly name: string
  /** How the lock is held. */
  readonly mode: LockMode
  /** The fencing token, for the resource to check. Not in the specification. */
  readonly fence: bigint
  /** Aborts when the lock is stolen or lost. Not in the specification. */
  readonly signal: AbortSignal
}

/** The options of `request`. */
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

export interface WebLockRequest<T> {
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
export function parseRequest<T>(args: readonly unknown[]): WebLockRequest<T> {
  const [first, second, third] = args
  const callback = args.length > 2 ? third : second
  if (args.length < 2) throw new TypeError(`Expected 2 arguments or more, got ${args.length}.`)
  // A template and not String(), which takes a symbol.
  const name = `${first}`
  const given = dictionaryOf(args.length > 2 ? second : undefined)
  // Each member once, in the order of their names.
  const ifAvailable = Boolean(given.ifAvailable)
  const mode = modeOf(given.mode)
  const signal = signalOf(given.signal)
  const options = { mode, ifAvailable, steal: Boolean(given.steal), signal }
  if (typeof callback !== 'function') throw new TypeError('Expected the last argument to be a function.')
  if (name.startsWith('-')) throw notSupported('a name that does not begin with "-"', `${name}`)
  if (options.steal && options.ifAvailable) throw notSupported('`steal` or `ifAvailable`', 'both')
  if (options.steal && mode !== 'exclusive') throw notSupported('`steal` with mode "exclusive"', mode)
  if (signal !== undefined && (options.steal || options.ifAvailable)) {
    throw notSupported('`signal` without `steal` and `ifAvailable`', 'both')
  }
  signal?.throwIfAborted()
  const { length } = escapeName(name)
  if (length > LONGEST_NAME) {
    const counted = length === name.length ? '' : ', where "%", NUL and unpaired surrogates count as 5'
    throw notSupported(`a name of at most ${LONGEST_NAME} characters${counted}`, `${length}`)
  }
  return { name, options, callback: callback as WebLockRequest<T>['callback'] }
}

export const LONGEST_NAME = 960

/** A name may be any string, a key only what every store keeps as it is: no NUL, and no half of a surrogate pair. */
export function escapeName(name: string): string {
  return name.replace(
    /[%\0\p{Surrogate}]/gu,
    (unit) => `%${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}

export function unescapeName(text: string): string {
  return text.replace(/%([0-9a-f]{4})/g, (_, code: string) => String.fromCharCode(Number.parseInt(code, 16)))
}

function modeOf(value: unknown): LockMode {
  const mode = value === undefined ? 'exclusive' : `${value}`
  if (mode === 'exclusive' || mode === 'shared') return mode
  throw new TypeError(`Expected \`mode\` to be 'exclusive' or 'shared', got ${JSON.stringify(mode)}.`)
}

function signalOf(value: unknown): AbortSignal | undefined {
  if (value === undefined || value instanceof AbortSignal) return value
  throw new TypeError('Expected `signal` to be an AbortSignal.')
}

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
