import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { beforeAll, expect, onTestFinished, test } from 'vitest'
import { ensureRuntimes, type Runtime, runtimes, startUnder } from '../servers/runtimes.ts'
import { until } from '../servers/until.ts'
import { freshFolder } from '../stores/sqlite/lock-folder.ts'
import { turnsIn } from '../stores/sqlite/turns.ts'

const folder = freshFolder()

beforeAll(ensureRuntimes, 600_000)

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
    await until('every contender has had a turn', () => contenders.every(({ pid }) => turnsOf(pid) > 0))
    victim.kill()
    contenders.splice(contenders.indexOf(victim), 1, start(runtime))
    killed.add(String(victim.pid))
  }
  await until('every contender has had a turn', () => contenders.every(({ pid }) => turnsOf(pid) > 0))
  for (const contender of contenders) expect(await contender.end()).toEqual({ code: 0, printed: '' })
  expect(turnsIn(lines(), killed)).toBeGreaterThan(contenders.length)

  function turnsOf(pid: number): number {
    return lines().filter((line) => line.startsWith('leave') && line.endsWith(` ${pid}`)).length
  }

  function start(runtime: Runtime) {
    const program = new URL('contender-program.ts', import.meta.url)
    const child = startUnder(runtime, [program, url, record], { stdio: 'pipe' })
    onTestFinished(() => void child.kill('SIGKILL'))
    const { stdin, stdout, stderr } = child
    if (stdin === null || stdout === null || stderr === null) throw new Error('Expected pipes')
    const printed = Promise.all([text(stdout), text(stderr)])
    const exited = once(child, 'exit')
    return {
      runtime,
      pid: child.pid ?? 0,
      kill: () => child.kill('SIGKILL'),
      async end() {
        stdin.end()
        const [code] = await exited
        return { code, printed: (await printed).join('') }
      },
    }
  }
})
