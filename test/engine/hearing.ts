import { type LockEventName, type LockEvents, lockEvents, type ProcessEvents } from '../../src/index.ts'

export type Heard = LockEvents[LockEventName]

/** Records all events from now on, in order. */
export function hear(source: Pick<ProcessEvents, 'on'>): Heard[] {
  const heard: Heard[] = []
  for (const name of lockEvents.names) source.on(name, (event) => heard.push(event))
  return heard
}

/** The names of the events, as one line. If a key is given, only those of the key. */
export function story(heard: readonly Heard[], key?: string): string {
  return heard
    .filter((event) => key === undefined || event.key === key)
    .map(({ event }) => event)
    .join(' ')
}

export function last<Name extends LockEventName>(heard: readonly Heard[], name: Name): LockEvents[Name] {
  const found = heard.filter(({ event }) => event === name).at(-1)
  if (found === undefined) throw new Error(`Expected an event ${name}, got ${story(heard)}`)
  return found as LockEvents[Name]
}
