// Plants an error or two for each row of the fault table in docs/promises.md, and looks whether the test of the row notices it:
//
//   npm run mutants [-- --only TEXT] [--jobs 2] [--json]
//
// It works on a copy of the sources and the tests. Each test has to pass without the error first. It writes the
// result to docs/promises.md; with --only the other rows stay. It exits with 1 if an error was not noticed. It takes a quarter of an hour, and is no part of `npm test`.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { type Edit, type Mutant, mutants } from '../test/faults/mutants.ts'

type Verdict = 'noticed' | 'not noticed' | 'the test fails without the error' | 'no test has this title'

interface Trial {
  readonly mutant: Mutant
  readonly verdict: Verdict
}

const root = fileURLToPath(new URL('../', import.meta.url))
const PAGE = `${root}docs/promises.md`
const [BEGIN, END] = ['<!-- written by npm run mutants -->', '<!-- end -->']
const ROW = /^\| (.+? \| .+?) \|.*\|$/gm
/** Most tests take seconds. A planted error may let one wait until its own limit. */
const TEST_LIMIT_MS = 300_000

process.exitCode = await main()

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      only: { type: 'string', default: '' },
      jobs: { type: 'string', default: '2' },
      json: { type: 'boolean', default: false },
    },
  })
  const chosen = mutants.filter(({ fault }) => fault.includes(values.only))
  if (chosen.length === 0) {
    process.stderr.write(`Expected --only to be a part of a fault in docs/promises.md, got ${values.only}.\n`)
    return 64
  }
  const trials = await triedAll(chosen, Math.max(1, Number(values.jobs)))
  if (values.json) process.stdout.write(`${JSON.stringify(trials.map(plain), null, 2)}\n`)
  writePage(trials)
  return trials.every(({ verdict }) => verdict === 'noticed') ? 0 : 1
}

/** Each job has a copy of the project, and takes the next error when it is done with one. */
async function triedAll(chosen: readonly Mutant[], jobs: number): Promise<readonly Trial[]> {
  const trials: Trial[] = []
  const left = [...chosen.entries()]
  const work = async (): Promise<void> => {
    const folder = copyOfProject()
    try {
      for (let next = left.shift(); next !== undefined; next = left.shift()) {
        const [index, mutant] = next
        const verdict = await tried(mutant, folder)
        trials[index] = { mutant, verdict }
        process.stderr.write(`${index + 1}/${chosen.length}  ${mutant.fault} → ${verdict}\n`)
      }
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  }
  await Promise.all(Array.from({ length: jobs }, work))
  return trials
}

function plain({ mutant: { fault, error, test, title }, verdict }: Trial): object {
  return { fault, error, test, title, verdict }
}

function copyOfProject(): string {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-mutants-'))
  const parts = ['src', 'test', 'scripts', 'package.json', 'tsconfig.json', 'vitest.config.ts']
  for (const part of parts) {
    cpSync(join(root, part), join(folder, part), {
      recursive: true,
      filter: (path) => !path.includes('node_modules'),
    })
  }
  symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'))
  return folder
}

async function tried(mutant: Mutant, folder: string): Promise<Verdict> {
  const before = await run(mutant, folder)
  if (before.passed + before.failed === 0) return 'no test has this title'
  if (before.failed > 0) return 'the test fails without the error'
  const sources = new Map(mutant.edits.map(({ file }) => [file, readFileSync(join(folder, file), 'utf8')]))
  try {
    for (const edit of mutant.edits) plant(edit, folder)
    if (mutant.edits.some(({ file }) => /\.(lua|sql)$/.test(file))) generate(folder)
    return (await run(mutant, folder)).failed > 0 ? 'noticed' : 'not noticed'
  } finally {
    for (const [file, text] of sources) writeFileSync(join(folder, file), text)
    if (mutant.edits.some(({ file }) => /\.(lua|sql)$/.test(file))) generate(folder)
  }
}

function plant({ file, find, replace }: Edit, folder: string): void {
  const path = join(folder, file)
  const parts = readFileSync(path, 'utf8').split(find)
  if (parts.length !== 2) throw new Error(`Expected ${file} to hold this once:\n${find}`)
  writeFileSync(path, parts.join(replace))
}

function generate(folder: string): void {
  const { status, stderr } = spawnSync(process.execPath, ['--import', 'tsx', 'scripts/generate.ts'], {
    cwd: folder,
    encoding: 'utf8',
  })
  if (status !== 0) throw new Error(`The modules could not be generated: ${stderr}`)
}

/** A file that cannot be loaded has no test that fails, and so notices nothing. */
async function run(
  { test, title }: Mutant,
  folder: string,
): Promise<{ readonly passed: number; readonly failed: number }> {
  const output = join(folder, 'outcome.json')
  rmSync(output, { force: true })
  const vitest = join(root, 'node_modules/vitest/vitest.mjs')
  const pattern = title.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
  const args = ['run', test, '--reporter=json', `--outputFile=${output}`]
  const child = spawn(process.execPath, [vitest, ...args, ...(title === '' ? [] : ['-t', pattern])], {
    cwd: folder,
    stdio: 'ignore',
    timeout: TEST_LIMIT_MS,
  })
  await once(child, 'exit')
  try {
    const outcome = JSON.parse(readFileSync(output, 'utf8'))
    return { passed: Number(outcome.numPassedTests), failed: Number(outcome.numFailedTests) }
  } catch {
    return { passed: 0, failed: 0 }
  }
}

function writePage(trials: readonly Trial[]): void {
  const page = readFileSync(PAGE, 'utf8')
  const [before = '', rest = ''] = page.split(BEGIN)
  const after = rest.split(END)[1] ?? ''
  const known = new Map(
    Array.from(rest.split(END)[0]?.matchAll(ROW) ?? [], ([row, name = '']) => [name, row] as const),
  )
  for (const { mutant, verdict } of trials) known.set(nameOf(mutant), rowOf(mutant, verdict))
  const rows = mutants.flatMap((mutant) => known.get(nameOf(mutant)) ?? [])
  const noticed = rows.filter((row) => row.includes('[noticed]')).length
  const lines = [
    BEGIN,
    `On ${new Date().toISOString().slice(0, 10)}, ${noticed} of ${mutants.length} were noticed.`,
    '',
    '| fault | planted error | |',
    '|---|---|---|',
    ...rows,
    END,
  ]
  writeFileSync(PAGE, `${before}${lines.join('\n')}${after}`)
}

function nameOf({ fault, error }: Mutant): string {
  return `${fault} | ${error}`
}

function rowOf({ fault, error, test }: Mutant, verdict: Verdict): string {
  const told = verdict === 'noticed' ? `[noticed](../${test})` : `**${verdict}**`
  return `| ${fault} | ${error} | ${told} |`
}
