import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { undisturbed } from '../base/measured.ts'
import { until } from '../servers/until.ts'
import { Shell } from './holdfast-process.ts'
import { openSqlite, type TestStore } from './stores.ts'

let store: TestStore
let shell: Shell
beforeEach(async () => {
  store = await openSqlite()
  shell = new Shell({ HOLDFAST_STORE: store.url })
})
afterEach(async () => {
  await shell.close()
  await store[Symbol.asyncDispose]()
})

/** A command whose child does the work: the child prints the signal that it got, and ends with 3. */
function family(signal: string): string[] {
  const grandchild = `trap "echo got ${signal}; exit 3" ${signal}; echo ready; while :; do sleep 0.02; done`
  // The child runs in the foreground, because a shell lets its background processes ignore Ctrl-C.
  const script = `trap : ${signal}; sh -c '${grandchild}'; exit $?`
  return ['sh', '-c', script]
}

describe('while the command runs', () => {
  test.each(['HUP', 'INT', 'QUIT', 'TERM', 'USR1', 'USR2', 'WINCH'])(
    'SIG%s reaches all its processes, and the exit code is the command’s',
    async (name) => {
      const running = shell.start(['run', 'backup', '--', ...family(name)])
      await running.prints('ready')
      running.signal(`SIG${name}` as NodeJS.Signals)
      expect(await running.exit).toBe(3)
      expect(running.stdout).toContain(`got ${name}`)
    },
  )

  test.each(['SIGUSR1', 'SIGUSR2', 'SIGALRM', 'SIGTERM'] as const)(
    '%s to the guardian alone ends nothing, and opens no port for a debugger',
    async (name) => {
      const script = 'echo ready; read line; exit 3'
      const running = shell.start(['run', 'backup', '--', 'sh', '-c', `sleep 2 | (${script})`])
      await running.prints('ready')
      process.kill(await running.guardian(), name)
      expect(await running.exit).toBe(3)
      expect(running.stderr).toBe('')
    },
  )

  test('a shell that dies of a signal keeps its key until the program that it has started has wound up', async () => {
    const program = 'trap "sleep 1; echo wound up; exit" TERM; echo ready; while :; do sleep 0.02; done'
    const running = shell.start(['run', 'backup', '--', 'sh', '-c', `sh -c '${program}'; echo not reached`])
    await running.prints('ready')
    running.signal('SIGTERM')
    expect(await running.exit).toBe(143)
    expect(running.stdout).toBe('ready\nwound up\n')
  })

  test('a second Ctrl-C also ends what a shell that is gone has left', async () => {
    const program = 'trap "echo ignored" INT; echo ready; while :; do sleep 0.02; done'
    // The shell ends at the first one, and does not wait for its program, as an interactive shell would.
    const running = shell.start([
      'run',
      'backup',
      '--',
      'sh',
      '-c',
      `trap "echo gone; exit 130" INT; sh -c '${program}' & wait`,
    ])
    await running.prints('ready')
    running.signal('SIGINT')
    await running.prints('gone')
    await new Promise((resolve) => setTimeout(resolve, 300))
    expect(running.running).toBe(true)
    // If a press comes more than two seconds after the one before, it counts as a first one.
    await until(
      'it has ended',
      () => {
        if (running.running) running.signal('SIGINT')
        return !running.running
      },
      { everyMs: 300 },
    )
    expect(await running.exit).toBe(130)
  })

  test('a guardian that dies before the key is free ends the wait', async () => {
    const holder = shell.start(['run', 'backup', '--', 'sh', '-c', 'echo ready; sleep 60'])
    await holder.prints('ready')
    const waiting = shell.start(['run', 'backup', '--', 'echo', 'no'])
    process.kill(await waiting.guardian(), 'SIGKILL')
    expect(await waiting.exit).toBe(71)
    expect(waiting.stderr).toContain('the process that guards the command could not be started, or has died')
    expect(holder.running).toBe(true)
    holder.signal('SIGTERM')
    expect(await holder.exit).toBe(143)
  })

  test('a Ctrl-C that npm passes on once more counts once', async () => {
    const script = 'trap "sleep 0.5; echo wound up; exit 3" INT; echo ready; while :; do sleep 0.02; done'
    const { code, stdout } = await undisturbed(
      (ran) => ran.code === 3,
      async () => {
        const running = shell.start(['run', 'backup', '--', 'sh', '-c', script])
        await running.prints('ready')
        running.signal('SIGINT')
        await new Promise((resolve) => setTimeout(resolve, 5))
        running.signal('SIGINT')
        return { code: await running.exit, stdout: running.stdout }
      },
    )
    expect(code).toBe(3)
    expect(stdout).toContain('wound up')
  })

  test('a second Ctrl-C soon after the first kills a command that ignores it', async () => {
    const script = 'trap "echo ignored" INT; echo ready; while :; do sleep 0.02; done'
    const running = shell.start(['run', 'backup', '--', 'sh', '-c', script])
    const asked = () => running.stdout.split('ignored').length - 1
    await running.prints('ready')
    let earlierAt = Number.NEGATIVE_INFINITY
    for (let presses = 1; running.running; presses += 1) {
      const pressedAt = performance.now()
      running.signal('SIGINT')
      await until('the command was asked or has ended', () => !running.running || asked() === presses)
      // A press is passed on only if it comes more than two seconds after the one before.
      if (running.running) expect(performance.now() - earlierAt).toBeGreaterThan(2000)
      earlierAt = pressedAt
      await new Promise((resolve) => setTimeout(resolve, 150))
    }
    expect(asked()).toBeGreaterThan(0)
    expect(await running.exit).toBe(137)
    expect((await shell.run(['run', '-n', 'backup', '--', 'true'])).code).toBe(0)
  })

  test('Ctrl-Z does not stop the renewal, and a message says so', async () => {
    // Longer than a busy machine keeps the process from a renewal.
    const running = shell.start(['run', '--ttl', '6s', 'backup', '--', 'sh', '-c', 'echo ready; sleep 8'])
    await running.prints('ready')
    running.signal('SIGTSTP')
    await running.prints('not stopped')
    expect(await running.exit).toBe(0)
  })

  test('a signal that a service manager sends to all processes ends the command in its own time', async () => {
    const script = 'trap "sleep 0.3; echo wound up; exit 4" TERM; echo ready; while :; do sleep 0.02; done'
    const running = shell.start(['run', 'backup', '--', 'sh', '-c', script])
    await running.prints('ready')
    process.kill(await running.guardian(), 'SIGTERM')
    running.signal('SIGTERM')
    expect(await running.exit).toBe(4)
    expect(running.stdout).toContain('wound up')
  })
})

describe('while it waits for the key', () => {
  test.each([
    ['SIGINT', 130],
    ['SIGTERM', 143],
    ['SIGHUP', 129],
    ['SIGQUIT', 131],
  ] as const)('%s gives up, and leaves the queue', async (name, code) => {
    const held = shell.start(['run', 'backup', '--', 'sh', '-c', 'echo holding; exec sleep 60'])
    await held.prints('holding')
    const waiting = shell.start(['run', 'backup', '--', 'echo', 'no'])
    const queue = async () => JSON.parse((await shell.run(['show', '--json', 'backup'])).stdout).queue.length
    await until('it waits', async () => (await queue()) === 1)
    waiting.signal('SIGWINCH')
    waiting.signal(name)
    expect(await waiting.exit).toBe(code)
    expect([waiting.stdout, waiting.stderr, await queue()]).toEqual(['', '', 0])
    held.signal('SIGTERM')
    expect(await held.exit).toBe(143)
  })
})
