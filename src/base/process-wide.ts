/**
 * A fact of which a process has one, also if it has loaded this library twice: by `import` and by `require`, or in a bundle and
 * beside it. The first copy that asks makes it.
 */
export function processWide<T>(name: string, make: () => T): T {
  const facts = factsOf(globalThis as { [FACTS]?: Map<string, unknown> })
  if (!facts.has(name)) facts.set(name, make())
  return facts.get(name) as T
}

function factsOf(holder: { [FACTS]?: Map<string, unknown> }): Map<string, unknown> {
  holder[FACTS] ??= new Map()
  return holder[FACTS]
}

/** Another number for facts of another shape, so that two versions of the library keep theirs apart. */
const FACTS: unique symbol = Symbol.for('holdfast facts 1')
