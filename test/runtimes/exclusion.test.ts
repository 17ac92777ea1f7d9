import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, expect, onTestFinished, test } from 'vitest'
import { ensureRuntimes, type Runtime, runtimes, runUnder, startUnder } from '../servers/runtimes.ts'
import { until } from '../servers/until.ts'
import { freshFolder } from '../stores/sqlite/lock-folder.ts'
import { turnsIn } from '../stores/sqlite/turns.ts'

const folder = freshFolder()

beforeAll(ensureRuntimes, 600_000)

test.each(runtimes)(
  'on %s a lock file that another connection is writing to is opened a moment later',
  async (runtime) => {
    const program = new URL('busy-file-program.ts', import.meta.url)
    const place = join(folder, runtime)
    expect(await runUnder(runtime, [program, place])).toEqual({
      code: 0,
      stdout: expect.stringContaining('Expected \\"/notes.txt\\" to be an SQLite database'),
      stderr: '',
    })
  },
)

test('processes on Node.js, Bun and Deno that share a lock file never hold together, also when some are killed', async () => {
  const url = `sqlite:${join(folder, 'locks.db')}`
  const record = join(folder, 'record')
  writeFileSync(record, '')
  const lines = () => readFileSync(record, 'utf8').trim().split('\n')
  const killed = new Set<string>()
  const contenders = runtimes.flatMap((runtime) => [start(runtime), start(runtime)])
  for (const runtime of runtimes) {
    const victim = contenders.find((contender) => contender.runtime === runtime)
    if (victim === undefined) break
    await until('every contender has had a turn', everyoneHadATurn)
    victim.kill()
    contenders.splice(contenders.indexOf(victim), 1, start(runtime))
    killed.add(String(victim.pid))
  }
  await until('every contender has had a turn', everyoneHadATurn)
  for (const contender of contenders) expect(await contender.end()).toEqual({ code: 0, printed: '' })
  expect(turnsIn(lines(), killed)).toBeGreaterThan(contenders.length)

  /** Throws what a contender has printed if it has ended by itself. */
  function everyoneHadATurn(): boolean {
    const gone = contenders.find((contender) => contender.hasEnded())
    if (gone !== undefined)
      throw new Error(`The contender on ${gone.runtime} has ended: ${gone.printedSoFar()}`)
    return contenders.every(({ pid }) => turnsOf(pid) > 0)
  }

  function turnsOf(pid: number): number {
    return lines().filter((line) => line.startsWith('leave') && line.endsWith(` ${pid}`)).length
  }

  function start(runtime: Runtime) {
    const program = new URL('contender-program.ts', import.meta.url)
    const child = startUnder(runtime, [program, url, record], { stdio: 'pipe' })
    onTestFinished(() => void child.kill('SIGKILL'))
    const { stdin, stdout, stderr } = child
    if (stdin === null || stdout === null || stderr === null) throw new Error('Expected pipes')
    let printed = ''
    for (const stream of [stdout, stderr]) stream.setEncoding('utf8').on('data', (part) => (printed += part))
    const closed = once(child, 'close')
    return {
      runtime,
      pid: child.pid ?? 0,
      hasEnded: () => child.exitCode !== null,
      printedSoFar: () => printed,
      kill: () => child.kill('SIGKILL'),
      async end() {
        stdin.end()
        const [code] = await closed
        return { code, printed }
      },
    }
  }
})
