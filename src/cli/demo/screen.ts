import type { Paint, Style } from '../terminal.ts'
import { age, plain } from '../text.ts'
import type { DemoEvent, Fault, HandOver } from './chronicle.ts'

/** An event as one line for people: time, worker, what happened. */
export function lineOf(
  event: DemoEvent,
  { startedAt, paint }: { readonly startedAt: number; readonly paint: Paint },
): string | undefined {
  const text = textOf(event, paint)
  if (text === undefined) return undefined
  const colour = COLOURS[(event.worker - 1) % COLOURS.length] ?? 'white'
  const at = `${((event.atMs - startedAt) / 1000).toFixed(3)}s`.padStart(9)
  return `${paint('dim', at)}  ${paint(colour, `worker ${event.worker}`.padEnd(9))}  ${text}`
}

const COLOURS: readonly Style[] = ['cyan', 'magenta', 'yellow', 'blue', 'green']

function textOf(event: DemoEvent, paint: Paint): string | undefined {
  switch (event.tag) {
    case 'hired':
      return paint('dim', `starts     process ${event.pid}`)
    case 'trying':
      return paint('dim', 'trying')
    case 'acquired':
      return `${paint('bold', 'acquired')}   fence ${event.fence}`
    case 'working':
      return `working    the register says ${event.value}`
    case 'renewing':
      return paint('dim', `renewing   ${age(event.remainingMs)} left again`)
    case 'released':
      return `released   after ${event.writes} writes`
    case 'took-over':
      return `${paint(['green', 'bold'], 'took over')}  from worker ${event.from}, ${CAUSES[event.after]}: ${paint('bold', milliseconds(event.tookMs))}`
    case 'struck':
      return paint(['red', 'bold'], `${STRIKES[event.fault]}  while it holds the key`)
    case 'continued':
      return paint(['red', 'bold'], `SIGCONT    after it stood still for ${age(event.stoppedMs)}`)
    case 'lost':
      return `${paint(['yellow', 'bold'], 'lost')}       it noticed (${plain(event.reason)})`
    case 'late-write':
      return event.counted
        ? paint(['red', 'bold'], `its late write COUNTED under fence ${event.fence}`)
        : `${paint(['yellow', 'bold'], 'refused')}    its late write, because fence ${event.fence} is stale`
    case 'failed':
      return paint(['red', 'bold'], `failed     ${plain(event.message)}`)
    case 'gone':
      return paint('dim', `is gone    ${event.how}`)
    default:
      return event satisfies never
  }
}

const STRIKES: Readonly<Record<Fault, string>> = {
  kill: 'SIGKILL  ',
  stop: 'SIGSTOP  ',
  term: 'SIGTERM  ',
}

const CAUSES: Readonly<Record<HandOver, string>> = {
  release: 'which released it',
  term: 'which was told to end and released it',
  kill: 'which was killed',
  stop: 'which stood still past its ttl',
}

export function milliseconds(durationMs: number): string {
  return `${durationMs < 10 ? durationMs.toFixed(1) : Math.round(durationMs)} ms`
}
