import { type ExecFileSyncOptionsWithStringEncoding, execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { COMMANDS } from '../../src/cli/commands.ts'
import { ensureBinary } from '../servers/install.ts'
import { PROGRAM } from './holdfast-process.ts'
import { Tmux } from './tmux.ts'

const shells = ['bash', 'zsh', 'fish'] as const
type ShellName = (typeof shells)[number]

const binaries: Readonly<Record<ShellName, string>> = {
  bash: ensureBinary('bash'),
  zsh: ensureBinary('zsh'),
  fish: ensureBinary('fish'),
}

let folder: string
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-completion-'))
  for (const shell of shells) writeFileSync(scriptOf(shell), holdfast('completion', shell))
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

function holdfast(...args: readonly string[]): string {
  return execFileSync(process.execPath, [PROGRAM, ...args], { encoding: 'utf8' })
}

function scriptOf(shell: ShellName): string {
  return join(folder, `holdfast.${shell}`)
}

/** What the shell offers behind a line, as text. A name of a file that is offered is `FILE`. */
const offers: Readonly<Record<'bash' | 'fish', (line: string) => readonly string[]>> = {
  bash(line) {
    // The variables and the call with which bash itself asks.
    const script = `source "$1"; COMP_LINE=$2; COMP_POINT=\${#COMP_LINE}; _holdfast; printf '%s\\n' "\${COMPREPLY[@]}"`
    return linesOf(
      execFileSync(binaries.bash, ['--norc', '-c', script, 'bash', scriptOf('bash'), line], QUIET),
    )
  },
  fish(line) {
    const script = 'source $argv[1]; complete -C $argv[2]'
    const output = execFileSync(binaries.fish, ['--no-config', '-c', script, scriptOf('fish'), line], QUIET)
    return linesOf(output).map((each) => each.split('\t')[0] ?? '')
  },
}

const QUIET: ExecFileSyncOptionsWithStringEncoding = { encoding: 'utf8', stdio: 'pipe' }

function linesOf(output: string): readonly string[] {
  return output.split('\n').filter((line) => line !== '')
}

test.each(shells)('the script is one that %s can read', (shell) => {
  expect(execFileSync(binaries[shell], ['-n', scriptOf(shell)], QUIET)).toBe('')
})

describe.each(['bash', 'fish'] as const)('%s', (shell) => {
  const offered = offers[shell]

  test('offers every command', () => {
    expect(offered('holdfast ')).toEqual(expect.arrayContaining(COMMANDS.map(({ name }) => name)))
    expect(offered('holdfast sh')).toEqual(['show'])
  })

  test.each(COMMANDS.map(({ name }) => name))('offers every option of %s', (name) => {
    const command = COMMANDS.find((each) => each.name === name)
    const names = Object.keys(command?.options ?? {}).map((each) => `--${each}`)
    expect([...offered(`holdfast ${name} --`)].sort()).toEqual(names.sort())
  })

  test('offers the values of an option that has few, in all its spellings', () => {
    for (const line of ['holdfast top --sort l', 'holdfast top -o l', 'holdfast top -b --sort=l']) {
      const values = offered(line).map((each) => each.replace('--sort=', ''))
      expect([...values].sort()).toEqual(['left', 'longest'])
    }
    expect([...offered('holdfast jobs ls --state de')].sort()).toEqual(['dead', 'delayed'])
  })

  test('offers the beginnings of URLs that the command takes', () => {
    expect([...offered('holdfast ls --store redis')].sort()).toEqual([
      'redis+cluster://',
      'redis+sentinel://',
      'redis://',
      'rediss+cluster://',
      'rediss+sentinel://',
      'rediss://',
    ])
    expect([...offered('holdfast jobs --store ')].sort()).toEqual(['postgres://', 'postgresql://'])
  })

  test('offers the only first words of a command, and none behind the first', () => {
    expect([...offered('holdfast completion ')].sort()).toEqual(['bash', 'fish', 'zsh'])
    expect(offered('holdfast help r')).toContain('run')
    expect(offered('holdfast jobs show ')).toEqual([])
  })

  test('offers commands behind the `--` of run, and nothing of its own', () => {
    expect(offered('holdfast run key -- unam')).toContain('uname')
    expect(offered('holdfast run key -- uname --sor')).toEqual(expect.not.arrayContaining(['--sort']))
    expect(offered('holdfast ls -- --')).toEqual([])
  })

  test('offers nothing for a key', () => {
    expect(offered('holdfast show ')).toEqual([])
    expect(offered('holdfast run -w ')).toEqual([])
  })
})

// What a person types, and what stands on the screen after the Tab key.
describe.each(shells)('in a terminal, %s', (shell) => {
  const start: Readonly<Record<ShellName, string>> = {
    bash: `exec bash --norc -i`,
    zsh: `exec zsh -f -i`,
    fish: `exec fish --no-config`,
  }
  const load: Readonly<Record<ShellName, (path: string) => string>> = {
    bash: (path) => `source ${path}`,
    zsh: (path) => `autoload -U compinit; compinit -u -D; source ${path}`,
    fish: (path) => `source ${path}`,
  }

  test('completes commands, options and values', async () => {
    await using terminal = new Tmux({ env: { HOME: folder } })
    terminal.enter(`${start[shell]}`)
    terminal.enter(`${load[shell](scriptOf(shell))}; echo loa''ded`)
    await terminal.shows(/^loaded/m)
    writeFileSync(join(folder, 'storeurl'), '')
    terminal.enter(`cd ${folder}`)
    terminal.type('holdfast top')
    terminal.press('Tab')
    await terminal.shows('holdfast top')
    terminal.type('--rev')
    terminal.press('Tab')
    await terminal.shows('holdfast top --reverse')
    terminal.type('--sort lon')
    terminal.press('Tab')
    await terminal.shows('--sort longest')
    terminal.type('--store-file storeu')
    terminal.press('Tab')
    await terminal.shows('--store-file storeurl')
    terminal.type('--store postgresq')
    terminal.press('Tab')
    await terminal.shows('--store postgresql://')
    terminal.type('host')
    await terminal.shows('--store postgresql://host')
    terminal.press('C-u')
    await terminal.shownNoMore('--store')
    terminal.type('holdfast run key -- unam')
    terminal.press('Tab')
    await terminal.shows('run key -- uname')
  })
})
