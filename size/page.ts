import { chartSvg } from '../bench/chart.ts'
import type { CrowdResult, FleetResult, YearResult } from './scenarios.ts'

/** What `npm run size` has measured: size/results.json. */
export interface Results {
  readonly date: string
  readonly crowds: readonly CrowdResult[]
  readonly fleets: readonly FleetResult[]
  readonly year: YearResult
}

/** docs/size.md. */
export function pageOf({ date, crowds, fleets, year }: Results): string {
  const busiest = fleets.at(-1)
  return `# Size

How much does a hand-over cost when a hundred thousand wait? What do a thousand processes ask of one server, and ten thousand of a
cluster? What is left after a year? The engine and the law run on simulated time, with the processes and the masters of such a system around them:

\`\`\`sh
npm run size
\`\`\`

The command wrote this page on ${date}, with [its results](../size/results.json). The simulation counts requests and messages. It says nothing of how long a
server works on them; the [benchmarks](../bench/RESULTS.md) measure that.

Each master runs the law, as the memory store does, half a millisecond away. A waiter costs a message only on the channel of its own
process. Nothing gets lost: faults are the subject of the [simulation](simulation.md).

## A crowd on one key

The waiters live in ${number(crowds[0]?.processes)} processes. First nobody releases, then the key is handed over again and again.

![Requests and messages for each hand-over are level from a hundred waiters to a hundred thousand.](images/size-crowd.svg)

| waiters | requests per hand-over | messages per hand-over | requests per second of a process that waits | left behind |
|---:|---:|---:|---:|---:|
${crowds
  .map(
    (one) =>
      `| ${number(one.waiters)} | ${number(one.requestsPerHandOver)} | ${number(one.messagesPerHandOver)} | ${number(one.requestsPerProcessSecond)} | ${number(one.left)} |`,
  )
  .join('\n')}

A hand-over is one request, the release, and one message, which is the lease. Beside that, each process asks about its waiters every two seconds,
up to 500 of them in one request. *Left behind* counts keys and tickets, in the stores and in the processes, when all have given up.

## Processes on one server, and over a cluster whose slots move

Each process holds a key of its own for the whole time, with the default ttl of 30 s. Every 10 seconds or so it also takes one of the shared keys, of
which there is one for ten processes. In the cluster, two slots a second move to another master.

![Over the cluster, requests per second of a process are level, and those of a master grow with the processes.](images/size-fleet.svg)

| processes | masters | slots moved in ${number(busiest?.seconds)} s | hand-overs | redirects | requests per second: a process | a master | the busiest master | leases lost | left behind |
|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
${fleets
  .map(
    (one) =>
      `| ${number(one.processes)} | ${number(one.masters)} | ${number(one.movedSlots)} | ${number(one.handOvers)} | ${number(one.redirects)} | ${number(one.requestsPerProcessSecond)} | ${number(one.requestsPerMasterSecond)} | ${number(one.requestsAtBusiestSecond)} | ${number(one.lostLeases)} | ${number(one.left)} |`,
  )
  .join('\n')}

The row with one master is the single server. It has no slots to move. Without redirects, a process sends a single server about as many
requests as it sends to a cluster.

## A year of a busy key

For ${number(year.days)} days, every ${number(year.everySeconds)} seconds, two processes want the same key for a second, and one of them also takes a key that nobody has used
before: ${number(year.handOvers)} grants of the busy key, and ${number(year.newKeys)} new keys. Left behind in the end: ${number(year.left)}.

![Keys, tickets and heap do not grow over the year.](images/size-year.svg)

| month | keys in the store | tickets in the processes | heap of the whole simulation, MiB |
|---:|---:|---:|---:|
${year.months.map((one) => `| ${one.month} | ${one.rooms} | ${one.scheduled} | ${number(one.heapMiB)} |`).join('\n')}
`
}

/** The plots of the page, by file name. */
export async function plotsOf({
  crowds,
  fleets,
  year,
}: Results): Promise<readonly (readonly [string, string])[]> {
  const crowd = await line('A crowd on one key', 'waiters', 'each hand-over', [
    ...crowds.map((one) => ({ x: one.waiters, y: one.requestsPerHandOver, name: 'requests' })),
    ...crowds.map((one) => ({ x: one.waiters, y: one.messagesPerHandOver, name: 'messages' })),
  ])
  const overCluster = fleets.filter(({ masters }) => masters > 1)
  const fleet = await line('Processes over a cluster', 'processes', 'requests per second', [
    ...overCluster.map((one) => ({ x: one.processes, y: one.requestsPerProcessSecond, name: 'a process' })),
    ...overCluster.map((one) => ({ x: one.processes, y: one.requestsPerMasterSecond, name: 'a master' })),
    ...overCluster.map((one) => ({
      x: one.processes,
      y: one.requestsAtBusiestSecond,
      name: 'the busiest master',
    })),
  ])
  const months = await chartSvg({
    title: 'A year of a busy key',
    data: {
      values: year.months.flatMap(({ month, rooms, scheduled, heapMiB }) => [
        { month, value: rooms, series: 'keys in the store' },
        { month, value: scheduled, series: 'tickets in the processes' },
        { month, value: heapMiB, series: 'heap (MiB)' },
      ]),
    },
    facet: { field: 'series', type: 'nominal', title: null, sort: null },
    columns: 3,
    resolve: { scale: { y: 'independent' } },
    spec: {
      width: 180,
      height: 120,
      mark: { type: 'line', point: true, color: '#0b62a4' },
      encoding: {
        x: { field: 'month', type: 'quantitative' },
        y: { field: 'value', type: 'quantitative', title: null, scale: { domainMin: 0 } },
      },
    },
  })
  return [
    ['size-crowd.svg', crowd],
    ['size-fleet.svg', fleet],
    ['size-year.svg', months],
  ]
}

interface Point {
  readonly x: number
  readonly y: number
  readonly name: string
}

function line(title: string, across: string, up: string, values: readonly Point[]): Promise<string> {
  return chartSvg({
    title,
    width: 480,
    height: 260,
    data: { values: [...values] },
    mark: { type: 'line', point: true },
    encoding: {
      x: { field: 'x', type: 'quantitative', scale: { type: 'log' }, title: across },
      y: { field: 'y', type: 'quantitative', scale: { domainMin: 0 }, title: up },
      color: { field: 'name', type: 'nominal', title: null, sort: null },
    },
  })
}

function number(value: number | undefined): string {
  return (value ?? 0).toLocaleString('en')
}
