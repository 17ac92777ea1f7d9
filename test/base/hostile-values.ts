/**
 * Values that a program may throw although nobody expects them: they have no text, or throw when they are asked for it.
 */
export const HOSTILE_VALUES: readonly (readonly [name: string, make: () => unknown])[] = [
  ['an object without a prototype', () => Object.create(null)],
  ['the groups of a regular expression', () => /(?<year>\d+)/.exec('2026')?.groups],
  ['an Error whose stack is no string', () => Object.assign(new Error('x'), { stack: [1, 2] })],
  ['an Error whose stack and message are no strings', () => errorWith({ stack: {}, message: Symbol('x') })],
  ['an Error whose fields throw', () => throwingError()],
  ['an object whose toString throws', () => ({ toString: () => fail() })],
  ['an object whose toString gives no text', () => ({ toString: () => ({}), valueOf: () => ({}) })],
  ['an object whose constructor has no name', () => ({ constructor: { name: Symbol('x') } })],
  ['a Proxy that throws at every question', () => new Proxy({}, throwingHandler())],
  ['a Proxy that was revoked', () => revoked({})],
  ['a Proxy of an array that was revoked', () => revoked([])],
  ['a symbol', () => Symbol('x')],
  ['a function', () => function named() {}],
  ['undefined', () => undefined],
  ['null', () => null],
  ['a bigint', () => 1n],
  ['an empty text', () => ''],
  ['a text of a million characters', () => 'x'.repeat(1_000_000)],
  ['an Error with a message of a million characters', () => new Error('x'.repeat(1_000_000))],
]

function fail(): never {
  throw new TypeError('This value does not let itself be asked.')
}

function errorWith(fields: Readonly<Record<string, unknown>>): Error {
  return Object.assign(new Error('x'), fields)
}

function throwingError(): Error {
  const fields = ['stack', 'message', 'name', 'cause', 'code', 'then', 'toString']
  return Object.defineProperties(
    new Error('x'),
    Object.fromEntries(fields.map((field) => [field, { get: fail }])),
  )
}

/** Every trap throws: also those behind `instanceof`, `in` and `typeof value.then`. */
function throwingHandler(): ProxyHandler<object> {
  return new Proxy({}, { get: () => fail })
}

function revoked(target: object): unknown {
  const { proxy, revoke } = Proxy.revocable(target, {})
  revoke()
  return proxy
}
