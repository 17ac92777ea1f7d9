import { execFileSync, spawnSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { ensureBinary } from '../servers/install.ts'
import { until } from '../servers/until.ts'
import { PROGRAM } from './holdfast-process.ts'

export interface TmuxOptions {
  readonly columns?: number
  readonly rows?: number
  readonly env?: Readonly<Record<string, string | undefined>>
}

/** A shell in a terminal of its own, in which `holdfast` is the program. The tests read what a person would see. */
export class Tmux implements AsyncDisposable {
  readonly #socket = `holdfast-${randomUUID()}`

  constructor({ columns = 100, rows = 24, env = {} }: TmuxOptions = {}) {
    const program = `${JSON.stringify(process.execPath)} ${JSON.stringify(PROGRAM)}`
    // An interactive shell has job control: it stops processes that it started, and lets them go on.
    const shell = ['env', `HOLDFAST=${program}`, 'PS1=$ ', ...assignments(env)]
    const size = ['-x', String(columns), '-y', String(rows)]
    this.#run(
      '-f',
      '/dev/null',
      'new-session',
      '-d',
      ...size,
      [...shell, 'bash', '--norc', '-i'].map(quoted).join(' '),
    )
    // Otherwise tmux keeps programs from copying.
    this.#run('set-option', '-s', 'set-clipboard', 'on')
  }

  /** The lines of the screen, without the blanks at their ends. `styled`: with colours, as control sequences. */
  lines({ styled = false }: { readonly styled?: boolean } = {}): readonly string[] {
    return this.#run('capture-pane', '-p', ...(styled ? ['-e'] : [])).split('\n')
  }

  get screen(): string {
    return this.lines().join('\n')
  }

  /** The modes that the program has set in the terminal. */
  get modes(): { readonly isOtherScreen: boolean; readonly hasCursor: boolean; readonly wraps: boolean } {
    const shown = this.#run('display-message', '-p', '#{alternate_on} #{cursor_flag} #{wrap_flag}')
    const [other, cursor, wrap] = shown.trim().split(' ')
    return { isOtherScreen: other === '1', hasCursor: cursor === '1', wraps: wrap === '1' }
  }

  /** Whether the program has asked for clicks. */
  get hasMouse(): boolean {
    return this.#run('display-message', '-p', '#{mouse_any_flag}').trim() === '1'
  }

  /** What the program has copied last. */
  get clipboard(): string {
    return this.#run('show-buffer')
  }

  /** Presses a key that has a name in tmux: `Enter`, `Down`, `C-c`. Types everything else as it is. */
  press(...keys: readonly string[]): void {
    this.#run('send-keys', ...keys)
  }

  type(text: string): void {
    this.#run('send-keys', '-l', '--', text)
  }

  /** As from a clipboard. */
  paste(text: string): void {
    this.#run('set-buffer', '-b', 'pasted', text)
    this.#run('paste-buffer', '-d', '-p', '-b', 'pasted')
  }

  /** Types a line for the shell, with Enter. */
  enter(command: string): void {
    this.type(command)
    this.press('Enter')
  }

  resize(columns: number, rows: number): void {
    this.#run('resize-window', '-x', String(columns), '-y', String(rows))
  }

  async shows(text: string | RegExp): Promise<void> {
    try {
      await until('the terminal shows it', () => matches(this.screen, text), {
        everyMs: 50,
      })
    } catch {
      throw new Error(`Waited in vain for ${text} in a terminal that shows:\n${this.screen}`)
    }
  }

  async shownNoMore(text: string | RegExp): Promise<void> {
    try {
      await until('it is gone', () => !matches(this.screen, text), { everyMs: 50 })
    } catch {
      throw new Error(`Waited in vain until ${text} was gone from a terminal that shows:\n${this.screen}`)
    }
  }

  /** The process that runs in the terminal besides the shell. */
  pid(): number {
    const [shell = ''] = this.#run('display-message', '-p', '#{pane_pid}').split('\n')
    return Number(execFileSync('ps', ['--ppid', shell, '-o', 'pid='], { encoding: 'utf8' }).trim())
  }

  async [Symbol.asyncDispose](): Promise<void> {
    spawnSync(TMUX, ['-L', this.#socket, 'kill-server'])
  }

  #run(...args: readonly string[]): string {
    return execFileSync(TMUX, ['-L', this.#socket, ...args], {
      encoding: 'utf8',
      // The settings of most terminals, and not those of the machine that runs the tests.
      env: {
        ...process.env,
        LC_ALL: 'C.UTF-8',
        TERM: 'xterm-256color',
        NO_COLOR: undefined,
        FORCE_COLOR: undefined,
      },
    })
  }
}

const TMUX = ensureBinary('tmux')

function assignments(env: Readonly<Record<string, string | undefined>>): readonly string[] {
  return Object.entries(env).flatMap(([name, value]) => (value === undefined ? [] : [`${name}=${value}`]))
}

function quoted(argument: string): string {
  return `'${argument.replaceAll("'", `'\\''`)}'`
}

function matches(screen: string, text: string | RegExp): boolean {
  return typeof text === 'string' ? screen.includes(text) : text.test(screen)
}
