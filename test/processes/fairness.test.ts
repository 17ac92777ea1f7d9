import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { clientKinds, inScene } from '../faults/scene.ts'
import { until } from '../servers/until.ts'
import { startMember } from './member.ts'

const PROCESSES = 4
const WAITERS = 25
const TURNS = 8

let folder: string
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-journal-'))
})
afterAll(() => rmSync(folder, { recursive: true }))

describe.each(clientKinds)('four processes with 25 waiters each on one key, on %s,', (kind) => {
  test(
    'take turns: one at a time, in the order in which they came, equally often, for two requests each',
    inScene(async (scene) => {
      await using monitor = await record(scene.server.port)
      const journal = join(folder, `${kind}.log`)
      const members = await Promise.all(
        Array.from({ length: PROCESSES }, () => startMember(scene.server.url, kind)),
      )
      try {
        const holder = await scene.direct().acquire('k')
        for (const member of members) await member.ask('compete', { key: 'k', waiters: WAITERS, journal })
        await scene.untilQueued('k', PROCESSES * WAITERS)
        const before = monitor.requests.length
        const startedAt = performance.now()
        await holder.release()
        const enough = PROCESSES * WAITERS * TURNS
        await until('everybody had several turns', () => turnsIn(journal).length >= enough, {
          everyMs: 50,
        })
        await Promise.all(members.map((member) => member.ask('stop', {})))
        const seconds = (performance.now() - startedAt) / 1000
        const turns = turnsIn(journal)
        expectOneAtATime(journal)
        expectEqualShares(turns.slice(0, enough))
        expect(turns.map(({ fence }) => fence)).toEqual(sorted(turns.map(({ fence }) => fence)))

        await until('the recording is complete', async () => {
          return monitor.requests.length === (await scene.requests())
        })
        const arrivals = arrivalsIn(monitor.requests, new Set(turns.map(({ id }) => id)))
        expect(turns.map(({ id }) => id)).toEqual(arrivals.ids)
        // A turn takes two requests, besides the acquire: the release and the confirmation. Now and then each process
        // also sends one to keep its waiters remembered. A slow machine sends more of these for each turn.
        const requests = monitor.requests.slice(before).filter((request) => !arrivals.requests.has(request))
        expect(requests.length).toBeLessThanOrEqual(2.1 * turns.length + PROCESSES * seconds)
        for (const member of members) expect(await member.end()).toBe(0)
      } finally {
        for (const member of members) await member[Symbol.asyncDispose]()
      }
    }),
  )
})

interface Turn {
  readonly id: string
  readonly fence: bigint
  readonly who: string
}

/**
 * Each process writes a line as it enters and as it leaves, each with one call. So the lines of the file are in the
 * order of the events.
 */
function linesOf(journal: string): string[][] {
  if (!existsSync(journal)) return []
  const lines = readFileSync(journal, 'utf8').split('\n').slice(0, -1)
  return lines.map((line) => line.split(' '))
}

function turnsIn(journal: string): Turn[] {
  return linesOf(journal)
    .filter(([what]) => what === 'enter')
    .map(([, id = '', fence = '0', who = '']) => ({ id, fence: BigInt(fence), who }))
}

function expectOneAtATime(journal: string): void {
  let inside: string | undefined
  for (const [what, id] of linesOf(journal)) {
    if (what === 'enter') {
      expect(inside).toBeUndefined()
      inside = id
    } else {
      expect(id).toBe(inside)
      inside = undefined
    }
  }
  expect(inside).toBeUndefined()
}

function expectEqualShares(turns: readonly Turn[]): void {
  const shares = new Map<string, number>()
  for (const { who } of turns) shares.set(who, (shares.get(who) ?? 0) + 1)
  const counts = [...shares.values()]
  expect(counts).toHaveLength(PROCESSES * WAITERS)
  expect(Math.min(...counts)).toBeGreaterThanOrEqual(TURNS - 2)
  const sum = counts.reduce((one, other) => one + other, 0)
  const squares = counts.reduce((one, other) => one + other ** 2, 0)
  expect(sum ** 2 / (counts.length * squares)).toBeGreaterThanOrEqual(0.99)
}

function sorted(fences: readonly bigint[]): bigint[] {
  return [...fences].sort((one, other) => (one < other ? -1 : 1))
}

type Request = readonly string[]

/** The ids in the order in which the server first heard of them, and the requests that brought them. */
function arrivalsIn(
  requests: readonly Request[],
  ids: ReadonlySet<string>,
): { ids: string[]; requests: Set<Request> } {
  const seen = new Set<string>()
  const placing = new Set<Request>()
  for (const request of requests) {
    for (const word of request) {
      if (!ids.has(word) || seen.has(word)) continue
      seen.add(word)
      placing.add(request)
    }
  }
  return { ids: [...seen], requests: placing }
}

interface Recording extends AsyncDisposable {
  readonly requests: Request[]
}

/**
 * Records the requests as the server itself reports them, in its order. It is an observer that shares nothing with the
 * store and its clients.
 */
async function record(port: number): Promise<Recording> {
  const socket = connect(port, '127.0.0.1')
  const lines = createInterface({ input: socket })
  const requests: Request[] = []
  lines.on('line', (line) => {
    if (!/^\+[\d.]+ \[0 [\d.:]+\] "eval/i.test(line)) return
    requests.push(Array.from(line.matchAll(/"((?:[^"\\]|\\.)*)"/g), ([, word = '']) => word))
  })
  socket.write('MONITOR\r\n')
  await once(lines, 'line')
  return {
    requests,
    async [Symbol.asyncDispose]() {
      socket.destroy()
    },
  }
}
