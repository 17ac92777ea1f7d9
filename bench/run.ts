/**
 * Measures Holdfast next to the hand-written baseline and to its peers. {@link HELP} lists the options.
 *
 * Every number comes from a fresh process. Rounds are interleaved over the candidates, ratios are taken within a round,
 * and medians are shown: the machine's speed drifts. With two processors or more, the server has one of its own and the
 * client another one; unpinned, a round trip flips between two speeds.
 */
import { execFile, spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { availableParallelism, cpus, release, type as systemType, tmpdir, totalmem } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs, promisify } from 'node:util'
import { startEtcd } from '../test/servers/etcd-server.ts'
import { ensureBinary } from '../test/servers/install.ts'
import { startPostgres } from '../test/servers/postgres-server.ts'
import { type RedisServer, startRedis } from '../test/servers/redis-server.ts'
import { type Line, writePlot } from './plot.ts'
import { type Candidate, median, PLOTS, type PlotName, type Scenario } from './scenario.ts'
import { scenarios } from './scenarios.ts'

const HELP = `npm run bench -- [options]

  --quick      3 rounds of fewer turns, to see that everything runs
  --only NAME  one table, or all tables whose names contain the text; may be repeated
  --list       print the names of all tables, and measure nothing
  --json       print the numbers as JSON; the tables go to standard error
  --plots      draw the plots of RESULTS.md anew, from the tables that were measured
  --help       print this text
`

const values = parseOptions()
if (values.help) {
  process.stdout.write(HELP)
  process.exit(0)
}

interface Row {
  readonly scenario: string
  readonly candidate: string
  /** Medians over the rounds, one per metric. */
  readonly values: readonly number[]
  /** The ratios of the first metric to the baseline in the same round: median, least, largest. */
  readonly ratio: readonly [number, number, number]
}

const run = promisify(execFile)
const measure = fileURLToPath(new URL('measure.js', import.meta.url))
const rounds = values.quick ? 3 : 7
const pinned = availableParallelism() > 1 && spawnSync('taskset', ['-c', '1', 'true']).status === 0
const chosen = values.only.length === 0 ? scenarios : [...new Set(values.only.flatMap(scenariosNamed))]

if (values.list) {
  for (const { name, title } of scenarios) process.stdout.write(`${name}\t${title}\n`)
  process.exit(0)
}
if (chosen.length === 0) {
  process.stderr.write(`Expected --only to name one of ${scenarios.map(({ name }) => name).join(', ')}.\n`)
  process.exit(64)
}

await ensureBinary('redis-server')
const server = await startRedis()
const redisVersion = /redis_version:(\S+)/.exec(String(await server.command('INFO', 'server')))?.[1] ?? '?'
const postgres = chosen.some(({ name }) => name.startsWith('postgres')) ? await startPostgres() : undefined
const etcd = chosen.some(({ name }) => name.startsWith('etcd')) ? await startEtcd() : undefined
if (pinned) {
  for (const pid of [server.pid, postgres?.pid, etcd?.pid].filter((one) => one !== undefined)) {
    spawnSync('taskset', ['-a', '-c', '-p', '0', String(pid)])
  }
}
const rows: Row[] = []
try {
  say(`${machine()}\n`)
  for (const scenario of chosen) rows.push(...(await compare(scenario, server)))
} finally {
  await server.close()
  await postgres?.close()
  await etcd?.close()
}
if (values.plots) await draw(rows)
if (values.json)
  process.stdout.write(`${JSON.stringify({ machine: machine(), quick: values.quick, rows }, null, 2)}\n`)

function parseOptions() {
  try {
    return parseArgs({
      options: {
        quick: { type: 'boolean', default: false },
        only: { type: 'string', multiple: true, default: [] },
        json: { type: 'boolean', default: false },
        plots: { type: 'boolean', default: false },
        list: { type: 'boolean', default: false },
        help: { type: 'boolean', short: 'h', default: false },
      },
    }).values
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\n\n${HELP}`)
    process.exit(64)
  }
}

/** The one of this name. If there is none, all whose names contain the text. */
function scenariosNamed(text: string): readonly Scenario[] {
  const exact = scenarios.filter(({ name }) => name === text)
  return exact.length > 0 ? exact : scenarios.filter(({ name }) => name.includes(text))
}

async function compare(scenario: Scenario, redis: RedisServer): Promise<Row[]> {
  const measured: number[][][] = scenario.candidates.map(() => [])
  for (let round = 0; round < rounds; round += 1) {
    for (const [index, candidate] of scenario.candidates.entries()) {
      measured[index]?.push(await once(scenario, candidate, redis))
      if (process.stderr.isTTY)
        process.stderr.write(`\r${scenario.name}: round ${round + 1} of ${rounds}\u001b[K`)
    }
  }
  if (process.stderr.isTTY) process.stderr.write('\r\u001b[K')
  const limit = measured[0] ?? []
  const result = scenario.candidates.map((candidate, index): Row => {
    const own = measured[index] ?? []
    const ratios = own
      .map((numbers, round) => (numbers[0] ?? Number.NaN) / (limit[round]?.[0] ?? Number.NaN))
      .filter(Number.isFinite)
    const medians = scenario.metrics.map((_, metric) =>
      median(own.map((numbers) => numbers[metric] ?? Number.NaN).filter(Number.isFinite)),
    )
    const ratio = [median(ratios), Math.min(...ratios), Math.max(...ratios)] as const
    return { scenario: scenario.name, candidate: candidate.name, values: medians, ratio }
  })
  show(scenario, result)
  return result
}

async function once(scenario: Scenario, candidate: Candidate, redis: RedisServer): Promise<number[]> {
  await redis.command('FLUSHALL')
  await redis.command('CONFIG', 'RESETSTAT')
  mkdirSync(tmpdir(), { recursive: true })
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-bench-'))
  try {
    const args = ['--expose-gc', measure, scenario.name, candidate.name, String(redis.port), folder]
    const node = [
      process.execPath,
      ...args,
      values.quick ? 'quick' : 'full',
      postgres?.url ?? '',
      etcd?.url ?? '',
    ]
    const core = scenario.oneCore === true ? '0' : '1'
    const [command = '', ...rest] = pinned ? ['taskset', '-c', core, ...node] : node
    const { stdout } = await run(command, rest, { timeout: 180_000, killSignal: 'SIGKILL' })
    return JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as number[]
  } catch (error) {
    // Some candidates do not come to an end with very many waiters. Their numbers are missing then, and no others.
    process.stderr.write(`${scenario.name}, ${candidate.name}: ${String(error).slice(0, 500)}\n`)
    return scenario.metrics.map(() => Number.NaN)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

function show(scenario: Scenario, result: readonly Row[]): void {
  say(`### ${scenario.title} (target ${scenario.target})\n`)
  const heads = scenario.metrics.map(({ name, unit }) => (unit === '' ? name : `${name} ${unit}`))
  say(`| candidate | ${heads.join(' | ')} | ratio | least–largest |`)
  say(`|---|${heads.map(() => '---:').join('|')}|---:|---:|`)
  for (const { candidate, values: numbers, ratio } of result) {
    const [middle, least, largest] = ratio.map((one) => (Number.isFinite(one) ? `${one.toFixed(2)}x` : '–'))
    say(`| ${candidate} | ${numbers.map(format).join(' | ')} | ${middle} | ${least}–${largest} |`)
  }
  say('')
}

/** A plot for each kind of scenario that was measured at two sizes or more. */
async function draw(measured: readonly Row[]): Promise<void> {
  const folder = fileURLToPath(new URL('../../bench/plots/', import.meta.url))
  for (const [name, labels] of Object.entries(PLOTS)) {
    const lines = new Map<string, [number, number][]>()
    for (const { scenario, candidate, values: numbers } of measured) {
      const size = sizeIn(name as PlotName, scenario)
      const cost = numbers[0] ?? Number.NaN
      if (size !== undefined && cost > 0)
        lines.set(candidate, [...(lines.get(candidate) ?? []), [size, cost]])
    }
    const drawn = [...lines].map(([candidate, points]): Line => ({ name: candidate, points }))
    if (drawn.some(({ points }) => points.length > 1))
      await writePlot(join(folder, `${name}.svg`), { ...labels, lines: drawn })
  }
}

function sizeIn(plot: PlotName, scenarioName: string): number | undefined {
  const scenario = scenarios.find(({ name }) => name === scenarioName)
  return scenario?.plot?.of === plot ? scenario.plot.size : undefined
}

function format(value: number): string {
  if (!Number.isFinite(value)) return '–'
  return value.toLocaleString('en', { maximumFractionDigits: value < 10 ? 2 : value < 1000 ? 1 : 0 })
}

function machine(): string {
  const model = cpus()[0]?.model.trim() ?? 'unknown processor'
  const memory = Math.round(totalmem() / 2 ** 30)
  const mode = `${rounds} rounds, ${pinned ? 'server and client pinned to a processor each' : 'not pinned'}${values.quick ? ', quick' : ''}`
  return `${cpus().length} × ${model}, ${memory} GiB, ${systemType()} ${release()}, Node.js ${process.version}, Redis ${redisVersion}; ${mode}`
}

/** With --json, standard output is for the JSON alone. */
function say(line: string): void {
  if (values.json) process.stderr.write(`${line}\n`)
  else process.stdout.write(`${line}\n`)
}
