import { KeyReader } from './keys.ts'

export interface FullScreenOptions {
  /** A key, by its name or as the character that was typed. */
  readonly onKey: (key: string) => void
  /** What is shown is gone, or the screen has another size: everything has to be drawn again. */
  readonly onStale: () => void
  /** The terminal is gone, or somebody wants the program to end. */
  readonly onEnd: (signal: NodeJS.Signals) => void
}

/**
 * The terminal as a page of our own, with keys that arrive as they are typed. Whatever ends the program, the terminal is
 * afterwards as it was before: its text, its cursor, its line editing.
 */
export class FullScreen {
  readonly #options: FullScreenOptions
  readonly #keys: KeyReader
  #shown: readonly string[] = []
  #isOpen = false
  #isBlocked = false

  constructor(options: FullScreenOptions) {
    this.#options = options
    this.#keys = new KeyReader((key) => (key === 'ctrl-z' ? this.#suspend(WHOLE_JOB) : options.onKey(key)))
  }

  /** Asked anew each time: while the program was stopped nobody told it. */
  get size(): { readonly columns: number; readonly rows: number } {
    const [columns, rows] = process.stdout.getWindowSize()
    // Some terminals do not know.
    return { columns: columns || 80, rows: rows || 24 }
  }

  open(): void {
    const { stdin, stdout } = process
    this.#enter()
    stdin.setEncoding('utf8').on('data', this.#onTyped).on('end', this.#onHangUp).resume()
    stdin.on('error', this.#onHangUp)
    stdout.on('resize', this.#onContinued)
    // However it ends, also by a mistake of ours.
    process.on('exit', this.#leave)
    for (const [signal, listener] of this.#signals) process.on(signal, listener)
  }

  /** Lines that fit, as many as there are rows. */
  draw(lines: readonly string[]): void {
    // Whoever looks at it over a slow line gets the latest page, and not all of those in between.
    if (!this.#isOpen || this.#isBlocked) return
    if (lines.length === this.#shown.length && lines.every((line, row) => line === this.#shown[row])) return
    this.#shown = lines
    const flows = process.stdout.write(HOME + lines.map((line) => CLEAR_LINE + line + PLAIN).join('\r\n'))
    if (flows) return
    this.#isBlocked = true
    process.stdout.once('drain', () => {
      this.#isBlocked = false
      this.#options.onStale()
    })
  }

  /** Whatever else has written to the screen is painted over. */
  forget(): void {
    this.#shown = []
  }

  /** Repeatable. */
  close(): void {
    const { stdin, stdout } = process
    this.#leave()
    stdin.off('data', this.#onTyped).off('end', this.#onHangUp).off('error', this.#onHangUp).pause()
    stdout.off('resize', this.#onContinued)
    process.off('exit', this.#leave)
    for (const [signal, listener] of this.#signals) process.off(signal, listener)
  }

  readonly #onTyped = (typed: string): void => this.#keys.push(typed)

  readonly #onHangUp = (): void => {
    process.on('exit', dieOfHangUp)
    this.#options.onEnd('SIGHUP')
  }

  readonly #onContinued = (): void => {
    this.forget()
    this.#options.onStale()
  }

  readonly #onStop = (): void => this.#suspend(process.pid)

  /** Also after a SIGSTOP, which nobody is told of, so that the shell has taken the terminal as it was. */
  readonly #onCont = (): void => this.#resume()

  readonly #signals: readonly (readonly [NodeJS.Signals, () => void])[] = [
    ['SIGINT', () => this.#options.onEnd('SIGINT')],
    ['SIGTERM', () => this.#options.onEnd('SIGTERM')],
    ['SIGHUP', this.#onHangUp],
    ['SIGQUIT', () => this.#options.onEnd('SIGQUIT')],
    ['SIGTSTP', this.#onStop],
    ['SIGCONT', this.#onCont],
  ]

  #enter(): void {
    // Node.js remembers the mode that it has set, and sets it only if it is another one.
    process.stdin.setRawMode(false)
    process.stdin.setRawMode(true)
    process.stdout.write(ENTER)
    this.#isOpen = true
  }

  readonly #leave = (): void => {
    if (!this.#isOpen) return
    this.#isOpen = false
    try {
      process.stdout.write(LEAVE)
      process.stdin.setRawMode(false)
    } catch {
      // The terminal is gone, and with it all that could be put in order.
    }
  }

  #suspend(target: number): void {
    this.#leave()
    process.off('SIGTSTP', this.#onStop)
    // Where nobody could continue it the kernel does not stop it.
    process.kill(target, 'SIGTSTP')
    setImmediate(() => this.#resume())
  }

  #resume(): void {
    process.off('SIGTSTP', this.#onStop).on('SIGTSTP', this.#onStop)
    this.#enter()
    this.#onContinued()
  }
}

/**
 * As it would have ended without us. At a common exit Node.js puts back the mode of the terminal, and where that is gone it
 * ends by a segmentation fault instead (seen with 20.20).
 */
function dieOfHangUp(): void {
  process.kill(process.pid, 'SIGHUP')
}

/** As the terminal itself does it: with whatever has started us, such as npx. */
const WHOLE_JOB = 0

/** The other screen, no cursor, no wrapping: a line that turns out wider than it was counted must not push the others down. */
const ENTER = '\u001b[?1049h\u001b[?25l\u001b[?7l'
const LEAVE = '\u001b[?7h\u001b[?25h\u001b[?1049l'
const HOME = '\u001b[H'
/** Before the text: behind one that fills the line it would take its last character away. */
const CLEAR_LINE = '\u001b[K'
const PLAIN = '\u001b[0m'
