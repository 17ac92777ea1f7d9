import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { connect } from '../../src/index.ts'
import { Shell } from './holdfast-process.ts'

let folder: string
/** This file name stands for a password, which no other user may see. */
let url: string
let shell: Shell
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-secrets-'))
  url = `sqlite:${join(folder, 'geheim.db')}`
  shell = new Shell()
})
afterEach(async () => {
  await shell.close()
  rmSync(folder, { recursive: true, force: true })
})

function fileWith(text: string, mode = 0o600): string {
  const path = join(folder, 'store-url')
  writeFileSync(path, text)
  chmodSync(path, mode)
  return path
}

describe('the URL of the store', () => {
  test.each([
    ['run', ['run', 'other', '--', 'true'], 0],
    ['ls', ['ls', '--json'], 0],
    ['show', ['show', '--json', 'invoice'], 0],
    ['top', ['top', '--once', '--json'], 0],
    ['doctor', ['doctor', '--json'], 0],
    ['evict', ['evict', '--json', '--reason', 'test', 'invoice'], 0],
    ['jobs', ['jobs'], 64],
    ['demo', ['demo', '--json', '--for', '2500ms'], 0],
  ])('is taken from a file by %s', async (_, args, exitCode) => {
    await using locks = await connect(url)
    await locks.acquire('invoice')
    const [command = '', ...rest] = args
    const { code, stdout, stderr } = await shell.run([command, '--store-file', fileWith(`${url}\n`), ...rest])
    expect(code).toBe(exitCode)
    if (['ls', 'show', 'top', 'evict'].includes(command)) expect(stdout).toContain('"invoice"')
    if (command === 'jobs') expect(stderr).toContain('got one that begins with "sqlite"')
  })

  test('is taken from the file that the environment names, unless an option gives another one', async () => {
    await using locks = await connect(url)
    await locks.acquire('invoice')
    const env = { HOLDFAST_STORE_FILE: fileWith(url) }
    expect((await shell.run(['ls', '--json'], { env })).stdout).toContain('"invoice"')
    const other = ['--store', `sqlite:${join(folder, 'other.db')}`]
    expect(await shell.run(['evict', 'invoice', '--reason', 'test', ...other], { env })).toEqual({
      code: 1,
      stdout: '',
      stderr: `holdfast: nobody holds or waits for "invoice" in sqlite ${join(folder, 'other.db')}\n`,
    })
  })

  test('is taken from a file that an editor has begun with a byte order mark', async () => {
    await using locks = await connect(url)
    await locks.acquire('invoice')
    const listed = await shell.run(['ls', '--json', '--store-file', fileWith(`\ufeff${url}\n`)])
    expect(listed).toMatchObject({ code: 0, stdout: expect.stringContaining('"invoice"') })
  })

  test('is given once', async () => {
    const path = fileWith(url)
    const typed = await shell.run(['ls', '--store', url, '--store-file', path])
    expect([typed.code, typed.stderr]).toEqual([
      64,
      'holdfast: Expected either --store or --store-file, got both. See holdfast ls --help.\n',
    ])
    const env = { HOLDFAST_STORE: url, HOLDFAST_STORE_FILE: path }
    const set = await shell.run(['ls'], { env })
    expect([set.code, set.stderr]).toEqual([
      64,
      'holdfast: Expected either HOLDFAST_STORE or HOLDFAST_STORE_FILE, got both. See holdfast ls --help.\n',
    ])
  })

  test.each(['0600', '0400', '0640', '0440'])('may be in a file of mode %s', async (mode) => {
    await (await connect(url)).close()
    const { code } = await shell.run(['ls', '--store-file', fileWith(url, Number.parseInt(mode, 8))])
    expect(code).toBe(0)
  })

  test.each(['0644', '0604', '0620', '0666'])(
    'is refused in a file of mode %s, which other users can read or write',
    async (mode) => {
      const { code, stderr } = await shell.run([
        'ls',
        '--store-file',
        fileWith(url, Number.parseInt(mode, 8)),
      ])
      expect([code, stderr]).toEqual([
        64,
        `holdfast: Expected the file of --store-file to be for its owner alone, got mode ${mode}: chmod 600 it. See holdfast ls --help.\n`,
      ])
    },
  )

  test('is refused in a sentence, without the text, when the file is not one readable line', async () => {
    const path = join(folder, 'nothing')
    for (const [given, sentence] of [
      [path, 'Expected --store-file to be a file that can be read, got ENOENT.'],
      [folder, 'Expected --store-file to be a file that can be read, got EISDIR.'],
      [fileWith(''), 'Expected the file of --store-file to have one line, got an empty file.'],
    ] as const) {
      const { code, stderr } = await shell.run(['ls', '--store-file', given])
      expect([code, stderr]).toEqual([64, `holdfast: ${sentence} See holdfast ls --help.\n`])
    }
    for (const text of [`${url}\nmore\n`, `${url}${'x'.repeat(70_000)}`]) {
      const { code, stderr } = await shell.run(['ls', '--store-file', fileWith(text)])
      expect([code, stderr]).toEqual([
        64,
        expect.stringMatching(/^holdfast: Expected the file of --store-file /),
      ])
      expect(stderr).not.toContain('geheim')
    }
  })

  test('may come through a pipe, which is read once', async () => {
    await using locks = await connect(url)
    await locks.acquire('invoice')
    for (const command of ['ls --json', 'top --once --json']) {
      const script = `eval "$HOLDFAST ${command}" --store-file <(printf %s "$URL") | cat`
      const terminal = shell.terminal(script, '', { URL: url })
      expect(await terminal.exit).toBe(0)
      expect(terminal.stdout).toContain('"invoice"')
    }
  })

  test('is in no command line under `holdfast run`, except in its own if it was typed there', async () => {
    const looks = ['run', 'job', '--', 'sh', '-c', 'ps -ww -o command= -p $$ -p $PPID']
    const [name = '', ...rest] = looks
    for (const [args, env] of [
      [['--store', url], {}],
      [['--store-file', fileWith(url)], {}],
      [[], { HOLDFAST_STORE: url }],
    ] as const) {
      const { code, stdout } = await shell.run([name, ...args, ...rest], { env })
      expect(code).toBe(0)
      // The lines of the guardian and of the command.
      expect(stdout.trim().split('\n')).toHaveLength(2)
      expect(stdout).not.toContain('geheim')
    }
  })

  test('with a password in the command line brings a warning when a person is there to read it', async () => {
    const warning = 'everybody on this machine can read the password in --store'
    const list = async (option: string, value: string): Promise<string> => {
      const terminal = shell.terminal(`eval "$HOLDFAST ls ${option}" "$VALUE"`, '', { VALUE: value })
      await terminal.exit
      return terminal.stdout
    }
    // No server listens on this port.
    const secret = 'redis://:geheim@127.0.0.1:1'
    const warned = await list('--store', secret)
    expect(warned.split(warning)).toHaveLength(2)
    expect(warned).not.toContain('geheim')
    expect(await list('--store', 'redis://127.0.0.1:1')).not.toContain(warning)
    expect(await list('--store-file', fileWith(secret))).not.toContain(warning)
    expect((await shell.run(['ls', '--store', secret])).stderr).not.toContain(warning)
  })
})
