import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { COMMANDS } from '../../src/cli/commands.ts'
import { DRIVERS } from '../../src/stores/drivers.ts'
import { freePort } from '../servers/free-port.ts'
import { startRedis } from '../servers/redis-server.ts'
import { readProjectFile } from '../tidy/project.ts'
import { DEFAULT_RUNTIME, Shell } from './holdfast-process.ts'

const withStore = COMMANDS.filter(({ options }) => options['store'] !== undefined).map(({ name }) => name)
const commands = COMMANDS.map(({ name }) => name)

let folder: string
let shell: Shell
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-usage-'))
  shell = new Shell({ HOLDFAST_STORE: `sqlite:${join(folder, 'locks.db')}` })
})
afterEach(async () => {
  await shell.close()
  rmSync(folder, { recursive: true, force: true })
})

describe('help', () => {
  test('lists every command', async () => {
    const { code, stdout, stderr } = await shell.run(['--help'])
    expect([code, stderr]).toEqual([0, ''])
    for (const command of commands) expect(stdout).toMatch(new RegExp(`^  ${command} `, 'm'))
  })

  test.each(commands)('of %s shows its syntax, and asks no store', async (command) => {
    const env = { HOLDFAST_STORE: 'nonsense' }
    const { code, stdout, stderr } = await shell.run([command, '--help'], { env })
    expect([code, stderr]).toEqual([0, ''])
    expect(stdout).toMatch(new RegExp(`^Usage: holdfast ${command} `))
    expect(stdout).toMatch(/^Examples:\n {2}\S/m)
    expect(stdout).toContain(`holdfast ${command}`)
    expect(Math.max(...stdout.split('\n').map((line) => line.length))).toBeLessThanOrEqual(80)
  })

  test.each(['', ...commands])('of %s fits into a narrow terminal', async (command) => {
    const terminal = shell.terminal(`stty cols 50; eval "$HOLDFAST ${command} --help"`, '')
    expect(await terminal.exit).toBe(0)
    const lines = terminal.stdout.split('\r\n')
    expect(lines[0]).toMatch(/^Usage: holdfast/)
    expect(lines.filter((line) => line.length > 50)).toEqual([])
  })

  test.each(withStore)('of %s shows every URL that its --store takes', async (command) => {
    const { stdout } = await shell.run([command, '--help'])
    const taken = COMMANDS.find(({ name }) => name === command)?.options['store']?.schemes ?? []
    expect(taken).not.toEqual([])
    for (const { schemes, example } of DRIVERS) {
      expect(stdout.includes(`  ${example} `)).toBe(schemes.some((scheme) => taken.includes(scheme)))
      for (const scheme of schemes) {
        // Not within a URL, as in redlock:redis://a,redis://b.
        const begins = new RegExp(`(?<![:,+\\w])${scheme.replace('+', '\\+')}:`)
        expect(begins.test(stdout)).toBe(taken.includes(scheme))
      }
    }
  })

  test.each(commands)('of %s is what `holdfast help` shows, too', async (command) => {
    expect(await shell.run(['help', command])).toEqual(await shell.run([command, '--help']))
  })

  test('without a command lists them all', async () => {
    expect(await shell.run(['help'])).toEqual(await shell.run(['--help']))
  })

  test('says that the default store is per user', async () => {
    expect((await shell.run(['--help'])).stdout).toContain('That file is per user')
    const { stdout } = await shell.run(['run', '--help'])
    expect(stdout.replaceAll(/\s+/g, ' ')).toContain(
      'a file in your state folder, which other users do not share',
    )
  })

  test('of a command behind `--` is the command’s own', async () => {
    const { stdout } = await shell.run(['run', 'backup', '--', 'printf', '%s', '--help'])
    expect(stdout).toBe('--help')
  })

  test('is the answer to an empty command line, as an error', async () => {
    const { code, stdout, stderr } = await shell.run([])
    expect([code, stdout]).toEqual([64, ''])
    expect(stderr).toContain('Usage: holdfast')
  })
})

test.each(['--version', '-V'])('%s is the version of the package', async (flag) => {
  const { version } = JSON.parse(readProjectFile('package.json'))
  expect(await shell.run([flag])).toEqual({ code: 0, stdout: `${version}\n`, stderr: '' })
})

describe('a mistake in the command line is said in one sentence, with exit code 64', () => {
  const run = (...options: string[]) => ['run', ...options, 'backup', '--', 'true']
  test.each([
    ['an unknown command', ['walk'], `a command (${commands.join(', ')}), got "walk"`],
    ['an unknown option', run('--frob'), 'an option of `holdfast run`, got --frob'],
    ['an unknown short option', run('-x'), 'an option of `holdfast run`, got -x'],
    ['an option of another command', ['ls', '--wait', '1s'], 'an option of `holdfast ls`, got --wait'],
    ['what every object has', ['ls', '--constructor'], 'an option of `holdfast ls`, got --constructor'],
    ['an option without its value', ['ls', '--store'], '--store to be followed by URL, got nothing'],
    ['an empty value', run('--label='), '--label to be followed by TEXT, got ""'],
    [
      'an option in the place of a value',
      ['evict', 'deploy', '--reason', '--id=42-ab'],
      '--reason to be followed by TEXT, or written as --reason=--id=42-ab, got "--id=42-ab"',
    ],
    ['a flag with a value', run('--shared=yes'), '--shared to be given without a value, got "yes"'],
    ['no key', ['run', '--', 'true'], 'one KEY before `--`, got nothing'],
    ['two keys', ['run', 'a', 'b', '--', 'true'], 'one KEY before `--`, got "a" and "b"'],
    ['two keys to show', ['show', 'a', 'b'], 'one KEY, got "a" and "b"'],
    ['an empty key', ['run', '', '--', 'true'], 'KEY to be a string with at least one character, got ""'],
    ['a huge key', ['run', 'k'.repeat(1025), '--', 'true'], 'KEY to have at most 1024 characters, got 1025'],
    ['no `--`', ['run', 'backup', 'true'], 'a command after `--`'],
    ['no command', ['run', 'backup', '--'], 'a command after `--`'],
    ['no command behind a key that begins with a dash', ['run', '--', '-k', '--'], 'a command after `--`'],
    ['two prefixes around `--`', ['ls', 'a', '--', 'b'], 'one PREFIX, got 2'],
    ['a redis url that is not encoded', run('--store', 'redis://:secret%zz@host'), 'not written as %25'],
    [
      'a certificate of a postgres url that is not there',
      ['ls', '--store', 'postgres://localhost/app?sslrootcert=/nowhere.pem'],
      'to name files that this process can read, got ENOENT',
    ],
    ['an empty command', ['run', 'backup', '--', ''], 'a command after `--`'],
    ['an unknown command to help with', ['help', 'walk'], 'the first word to be one of run, '],
    [
      'a negative duration',
      run('--wait=-1s'),
      '--wait to be a number of seconds, or a duration such as 500ms',
    ],
    ['a duration in words', run('--ttl', '1 week'), '--ttl to be a number of seconds, or a duration'],
    ['too many seconds', run('--ttl', '3000000'), 'up to 576h, got "3000000"'],
    ['no shell to complete for', ['completion'], 'bash, zsh or fish, got nothing'],
    ['an unknown shell', ['completion', 'csh'], 'the first word to be one of bash, zsh, fish, got "csh"'],
    ['a key without a ttl', ['acquire', 'backup'], '--ttl followed by DURATION, got nothing'],
    ['a lease that is no JSON', ['release', 'backup'], 'the JSON that `holdfast acquire` printed'],
    ['a lease that is none', ['release', '{}'], 'the lease to be the JSON that `holdfast acquire` printed'],
    ['a huge label', run('--label', 'x'.repeat(501)), '--label to be a text of at most 500 characters'],
    ['no lease', ['extend'], 'one LEASE or --lease-file, got nothing'],
    ['a lease and a file', ['release', '{}', '--lease-file', 'x'], 'options only, got "{}"'],
    ['a file without a lease', ['release', '--lease-file', 'nowhere'], 'that can be read, got ENOENT'],
    ['a duration that is too long', run('--ttl', '600h'), 'up to 576h, got "600h"'],
    ['a ttl of nothing', run('--ttl', '0ms'), '--ttl to be at least 100ms, got "0ms"'],
    ['a ttl that is over at once', run('--ttl', '50ms'), '--ttl to be at least 100ms, got "50ms"'],
    ['both ways to wait', run('-n', '-w', '1s'), 'either --no-wait or --wait, got both'],
    [
      'a grace longer than half of the ttl',
      run('--ttl', '10s', '--grace', '6s'),
      '--grace to be at most half of the ttl',
    ],
    [
      'a busy code beyond what an exit code can be',
      run('-E', '256'),
      '--busy-code to be a whole number from 0 to 255',
    ],
    [
      'permits that are no number',
      run('--permits', 'many'),
      '--permits to be a whole number from 1 to 1000000',
    ],
    [
      'more units than permits',
      run('--permits', '2', '--units', '3'),
      '--units to be a whole number from 1 to 2',
    ],
    ['units of nothing', run('--units', '2'), '--units together with --permits'],
    ['two modes', run('--permits', '2', '-s'), 'either --shared or --permits, got both'],
    ['an unknown store', run('--store', 'mongodb://localhost'), ', got mongodb:'],
    [
      'a connection string that is no URL',
      ['jobs', '--store', 'host=db user=app password=hunter2'],
      'to be a postgres:// URL, got a text without a scheme.',
    ],
    [
      'a list of servers without a scheme',
      ['init', '--store', '//:hunter2@a,redis://b'],
      'to be a redlock: URL, got a text without a scheme.',
    ],
    ['no store at all', run('--store', 'locks.db'), 'got no scheme'],
    [
      'a store that nobody else sees',
      run('--store', 'memory:'),
      'a store that other processes share, got memory:',
    ],
    ['two prefixes', ['ls', 'a', 'b'], 'one PREFIX, got 2'],
    ['nothing to show', ['show'], 'KEY, got nothing'],
    ['an eviction without a reason', ['evict', 'backup'], '--reason followed by TEXT, got nothing'],
    [
      'an endless reason',
      ['evict', 'backup', '--reason', 'x'.repeat(501)],
      '--reason to be a text of 1 to 500 characters',
    ],
    ['a demo with one worker', ['demo', '--workers', '1'], '--workers to be a whole number from 2 to 50'],
    ['a demo in a hurry', ['demo', '--kill-every', '1ms'], '--kill-every to be at least 500ms'],
    ['a demo that is over at once', ['demo', '--for', '1s'], '--for to be at least 2500ms, got "1s"'],
    [
      'a demo without a take-over',
      ['demo', '--ttl', '1h'],
      '--ttl to be at most --kill-every, which is 4.0s, got "1h"',
    ],
    ['a demo with a word', ['demo', 'now'], 'options only, got "now"'],
  ])('%s', async (_, args, sentence) => {
    const { code, stdout, stderr } = await shell.run(args)
    expect({ code, stdout }).toEqual({ code: 64, stdout: '' })
    expect(stderr).toContain(sentence)
    expect(stderr).toMatch(/^holdfast: Expected [^\n]+\. See holdfast ([a-z]+ )?--help\.\n$/)
  })
})

test('a command to type is told apart from the sentence behind it', async () => {
  const hook = `import Module from 'node:module'
    const resolve = Module._resolveFilename
    Module._resolveFilename = function (name, ...others) {
      if (!/^(pg|postgres)$/.test(name)) return resolve.call(this, name, ...others)
      throw Object.assign(new Error('It is not installed.'), { code: 'MODULE_NOT_FOUND' })
    }`
  const env = { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(hook)}` }
  // Deno does not read NODE_OPTIONS.
  const node = new Shell({}, 'node')
  const { code, stderr } = await node.run(['ls', '--store', 'postgres://localhost/app'], { env })
  expect(code).toBe(64)
  expect(stderr).toMatch(/^holdfast: [^\n]*: `npm install pg`\. See holdfast ls --help\.\n$/)
  await node.close()
})

test('a number without a unit is seconds', async () => {
  // Longer than a busy machine keeps the process from a renewal.
  const held = shell.start(['run', '--ttl', '8.5', 'backup', '--', 'sh', '-c', 'echo holding; exec sleep 60'])
  await held.prints('holding')
  const { stdout } = await shell.run(['show', '--json', 'backup'])
  expect(JSON.parse(stdout).holders[0].remainingMs).toBeLessThanOrEqual(8500)
  const busy = await shell.run(['run', '-w', '0.3', 'backup', '--', 'true'])
  expect(busy).toMatchObject({ code: 75, stderr: expect.stringContaining('was not free within 300ms') })
  held.signal('SIGTERM')
  expect(await held.exit).toBe(143)
})

describe('a store that cannot be used is said in one sentence, with exit code 69', () => {
  test.each(['run', 'ls', 'show', 'evict', 'demo'])('by %s, when there is no server', async (command) => {
    const url = `redis://:secret@127.0.0.1:${await freePort()}`
    const { code, stdout, stderr } = await shell.run([...argumentsOf(command, url)])
    expect({ code, stdout }).toEqual({ code: 69, stdout: '' })
    expect(stderr).toMatch(/^holdfast: [^\n]+\n$/)
    expect(stderr).not.toContain('secret')
  })

  test.each(['run', 'ls', 'show', 'evict', 'demo'])(
    'by %s, when the file is no database',
    async (command) => {
      const path = join(folder, 'text')
      writeFileSync(path, 'no database, but long enough to be looked at as if it were one. '.repeat(100))
      const { code, stdout, stderr } = await shell.run([...argumentsOf(command, `sqlite:${path}`)])
      expect({ code, stdout }).toEqual({ code: 69, stdout: '' })
      expect(stderr).toMatch(/^holdfast: [^\n]+\n$/)
    },
  )

  test('by a command that would not wait, when the server hangs', async () => {
    await using redis = await startRedis()
    await redis.pause()
    const args = ['run', '-n', '--store', redis.url, 'backup', '--', 'true']
    const { code, stderr } = await shell.run(args)
    redis.resume()
    expect(code).toBe(69)
    expect(stderr).toMatch(/^holdfast: The Redis server did not answer within 5 s[^\n]+\n$/)
  })

  function argumentsOf(command: string, url: string): readonly string[] {
    const words: Record<string, string[]> = {
      run: ['backup', '--', 'true'],
      show: ['backup'],
      evict: ['backup', '--reason', 'x'],
    }
    return [command, '--store', url, ...(words[command] ?? [])]
  }
})

test('a key that begins with a dash stands behind `--`', async () => {
  const held = shell.start(['run', '--', '-n', '--', 'sh', '-c', 'echo "<$HOLDFAST_KEY>"; exec sleep 60'])
  await held.prints('<-n>')
  expect((await shell.run(['ls', '--', '-n'])).stdout).toContain('mutex')
  expect((await shell.run(['ls', '--', 'zzz'])).stderr).toContain(
    'holdfast: no key under "zzz" is held in sqlite ',
  )
  expect((await shell.run(['show', '--', '-n'])).stdout).toContain('1 holding')
  expect((await shell.run(['evict', '--reason', 'done', '--', '-n'])).code).toBe(0)
  expect(await held.exit).toBe(76)
})

test('output that cannot be written is said in one sentence, with exit code 74', async () => {
  const full = shell.terminal('eval "$HOLDFAST --version > /dev/full"', '')
  // Deno 2.9 does not let a program handle it, and prints its own words.
  if (DEFAULT_RUNTIME === 'deno') return expect(await full.exit).toBe(1)
  expect(await full.exit).toBe(74)
  expect(full.stdout.trim()).toBe('holdfast: the output cannot be written (ENOSPC)')
})

test('complaints that no process reads change no exit code', async () => {
  const started = shell.start(['evict', 'backup', '--reason', 'x'])
  started.closeErrors()
  expect(await started.exit).toBe(1)
})

test('without any store given, the keys live in the user’s state folder', async () => {
  const env = { HOLDFAST_STORE: '', XDG_STATE_HOME: folder, HOME: folder, LOCALAPPDATA: folder }
  expect((await shell.run(['run', 'backup', '--', 'true'], { env })).code).toBe(0)
  const held = shell.start(['run', 'backup', '--', 'sh', '-c', 'echo ready; exec sleep 60'], { env })
  await held.prints('ready')
  expect((await shell.run(['ls'], { env })).stdout).toContain('backup')
  const busy = await shell.run(['run', '-n', 'backup', '--', 'true'], { env })
  expect(busy.stderr).toMatch(/ for \S+ in the default store of this user \(sqlite [^)]+\)\n$/)
  const { stderr } = await shell.run(['show', 'other'], { env })
  expect(stderr).toMatch(/^holdfast: looked in the default store of this user \(sqlite [^)]+\)\n$/)
  expect((await shell.run(['ls'])).stdout).toBe('')
  held.signal('SIGTERM')
  expect(await held.exit).toBe(143)
})
