import type { ChildProcess } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { beforeAll, expect, onTestFinished, test } from 'vitest'
import type { Ticket } from '../../../src/contract/store.ts'
import { ensureRuntimes, type Runtime, runtimes, startUnder } from '../../servers/runtimes.ts'
import { until } from '../../servers/until.ts'
import { freshFolder } from './lock-folder.ts'
import { ticket } from './tickets.ts'

const folder = freshFolder()
let files = 0
function freshPath(): string {
  files += 1
  return join(folder, `${files}.db`)
}

beforeAll(ensureRuntimes, 600_000)

/** A process of some runtime that uses a lock file. */
class RuntimeProcess {
  readonly startedAt: number = performance.now()
  readonly woken: unknown[] = []
  readonly #child: ChildProcess
  readonly #answers: ((answer: unknown) => void)[] = []
  #errors = ''

  constructor(runtime: Runtime, path: string, options: { readonly rights?: readonly string[] } = {}) {
    const program = new URL('processes/answer-lines.ts', import.meta.url)
    this.#child = startUnder(runtime, [program, path], { ...options, stdio: ['pipe', 'pipe', 'pipe'] })
    const { stdout, stderr } = this.#child
    if (stdout === null || stderr === null) throw new Error('Expected pipes')
    stderr.setEncoding('utf8').on('data', (text: string) => {
      this.#errors += text
    })
    createInterface({ input: stdout }).on('line', (line) => {
      const answer = JSON.parse(line) as { readonly wake?: unknown }
      if ('wake' in answer) this.woken.push(answer.wake)
      else this.#answers.shift()?.(answer)
    })
    this.#child.once('close', () => {
      for (const answer of this.#answers.splice(0)) answer({ died: this.#errors })
    })
    onTestFinished(() => {
      this.#child.kill('SIGKILL')
    })
  }

  ask(call: object): Promise<unknown> {
    return new Promise((resolve) => {
      this.#answers.push(resolve)
      this.#child.stdin?.write(`${JSON.stringify(call)}\n`)
    })
  }

  acquire(asked: Ticket): Promise<unknown> {
    return this.ask({ verb: 'acquire', ticket: asked })
  }
}

test.each(runtimes)(
  'on %s a process reads the clock that all processes of the machine share',
  async (runtime) => {
    const asked = new RuntimeProcess(runtime, freshPath())
    await asked.ask({ verb: 'clocks' })
    const before = Number(process.hrtime.bigint()) / 1e6
    const clocks = (await asked.ask({ verb: 'clocks' })) as readonly number[]
    const after = Number(process.hrtime.bigint()) / 1e6
    // The clock of the lock file, and the clock of the deadlines of `holdfast run`.
    expect(clocks).toHaveLength(2)
    for (const clock of clocks) {
      expect(clock).toBeGreaterThan(before)
      expect(clock).toBeLessThan(after)
    }
  },
)

test.each([
  ['bun', 'bun'],
  ['deno', 'deno'],
  ['bun', 'node'],
  ['deno', 'node'],
  ['bun', 'deno'],
] as const)(
  'a key that a process of %s holds is not granted to an older one of %s',
  async (younger, older) => {
    const path = freshPath()
    const elder = new RuntimeProcess(older, path)
    await elder.ask({ verb: 'clocks' })
    await until(
      'one is older by more than the ttl',
      () => performance.now() - elder.startedAt > TTL_MS + 1000,
    )
    const young = new RuntimeProcess(younger, path)
    await young.ask({ verb: 'clocks' })
    // On a busy machine an answer may come after the ttl is over. Then it shows nothing.
    await until('both have answered within the ttl', async () => {
      const mine = ticket({ ttlMs: TTL_MS })
      const askedAt = performance.now()
      const first = await young.acquire(mine)
      const second = await elder.acquire(ticket({ patienceMs: 0 }))
      if (performance.now() - askedAt > TTL_MS) return false
      expect(first).toMatchObject({ tag: 'held' })
      expect(second).toMatchObject({ tag: 'busy' })
      return true
    })
  },
)

const TTL_MS = 3000

test.each([
  ['bun', 'node'],
  ['node', 'bun'],
  ['deno', 'node'],
  ['node', 'deno'],
  ['deno', 'bun'],
] as const)('a process of %s wakes one of %s', async (from, to) => {
  const path = freshPath()
  const [holder, waiter] = [new RuntimeProcess(from, path), new RuntimeProcess(to, path)]
  const [mine, next] = [ticket(), ticket()]
  expect(await holder.acquire(mine)).toMatchObject({ tag: 'held' })
  expect(await waiter.ask({ verb: 'listen' })).toEqual({ listening: true })
  expect(await waiter.acquire(next)).toMatchObject({ tag: 'queued' })
  await holder.ask({ verb: 'release', key: mine.key, id: mine.id })
  await until('it is woken', () => waiter.woken.some((wake) => (wake as { id?: string }).id === next.id))
  expect(await waiter.acquire(next)).toMatchObject({ tag: 'held' })
})

test('Deno without the right to call the C library is refused in one sentence, and no file is made', async () => {
  const path = freshPath()
  const rights = ['--allow-read', '--allow-write', '--allow-env', '--allow-sys']
  const refused = new RuntimeProcess('deno', path, { rights })
  expect(await refused.acquire(ticket())).toEqual({
    name: 'StoreError',
    code: 'store-refused',
    message:
      'The sqlite store needs the clock that all processes of the machine share, and process.hrtime() of this runtime counts from the start of the process. Use Node.js; or, on Linux, Bun, or Deno with --allow-ffi.',
  })
  expect(existsSync(path)).toBe(false)
})
