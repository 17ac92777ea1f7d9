import { type Channel, channel, subscribe, unsubscribe } from 'node:diagnostics_channel'
import { expected, parseFunction } from './arguments.ts'
import { runAround, type Wrap } from './around.ts'
import { callListener } from './listener.ts'
import { reportOf } from './thrown.ts'

/** The events of one part of the package, of the whole process. */
export interface TopicEvents<Events extends object> {
  /** The names of all events, to listen to each. */
  readonly names: readonly (keyof Events & string)[]
  /**
   * Calls `listener` for each event, synchronously: keep it short. Returns a function that removes it. What it throws becomes one
   * process warning and changes nothing else.
   *
   * @throws {InvalidArgumentError} when there is no such event.
   */
  on<Name extends keyof Events & string>(event: Name, listener: (event: Events[Name]) => void): () => void
}

/** One event: its diagnostics channel, `holdfast:jobs:ended` for example. */
export class WorkTopic<Event extends object> {
  readonly #name: string
  readonly #channel: Channel
  /** One for all, because a listener passes a new function each time, and its failure is warned of once. */
  readonly #attempt: (step: () => unknown) => void

  constructor(area: string, name: string) {
    this.#name = name
    this.#channel = channel(channelName(area, name))
    this.#attempt = guarded(`${area}:${name}`, (step) => (step as () => unknown)())
  }

  /** Asked before an event is prepared: as a rule nobody listens, and nothing is paid for then. */
  get isHeard(): boolean {
    return this.#channel.hasSubscribers
  }

  tell(event: Omit<Event, 'event' | 'at'>): void {
    this.#channel.publish({ event: this.#name, at: Date.now(), ...event })
  }

  /** Tells an event that has `around`, and runs the work inside of what its listeners pass. `facts` is called only if there are any. */
  runAround<T>(facts: () => Omit<Event, 'event' | 'at' | 'around'>, work: () => T): T {
    if (!this.isHeard) return work()
    const tell = (around: (wrap: Wrap) => void) =>
      this.#channel.publish({ event: this.#name, at: Date.now(), ...facts(), around })
    return runAround(work, this.#attempt, [tell])
  }
}

export type Topics<Events extends object> = {
  readonly [Name in keyof Events]: WorkTopic<Events[Name] & object>
}

/** The topics of a part of the package, for the part itself, and its events for those who listen. */
export function makeTopics<Events extends object>(
  area: string,
  names: readonly (keyof Events & string)[],
): { readonly topics: Topics<Events>; readonly events: TopicEvents<Events> } {
  const topics = Object.fromEntries(names.map((name) => [name, new WorkTopic(area, name)]))
  return {
    topics: topics as unknown as Topics<Events>,
    events: {
      names,
      on(name, listener) {
        if (!names.includes(name)) throw expected('event', `one of ${names.join(', ')}`, name)
        parseFunction('listener', listener)
        return listenersIn<Events>(area).on(name, listener)
      },
    },
  }
}

/** To listen to the events of a part of the package without loading it, and what it needs. */
export function listenersIn<Events extends object>(area: string): Pick<TopicEvents<Events>, 'on'> {
  return {
    on(name, listener) {
      const subscriber = guarded(`${area}:${name}`, listener as (event: unknown) => unknown)
      subscribe(channelName(area, name), subscriber)
      return () => {
        unsubscribe(channelName(area, name), subscriber)
      }
    },
  }
}

function channelName(area: string, name: string): string {
  return `holdfast:${area}:${name}`
}

/** Only its first failure is warned of, as they may come in thousands. */
function guarded(name: string, listener: (event: unknown) => unknown): (event: unknown) => void {
  let hasWarned = false
  const warn = (error: unknown): void => {
    if (hasWarned) return
    hasWarned = true
    process.emitWarning(`A listener to the event \`${name}\` failed. The work goes on.`, {
      type: 'HoldfastWarning',
      detail: reportOf(error),
    })
  }
  return (event) => callListener(() => listener(event), warn)
}
