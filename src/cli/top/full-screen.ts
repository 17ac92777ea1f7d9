import { KeyReader } from './keys.ts'

export interface FullScreenOptions {
  /** Called with the name of a key, or the character that was typed. */
  readonly onKey: (key: string) => void
  /** The screen was overwritten or resized: everything has to be drawn again. */
  readonly onStale: () => void
  /** The terminal is gone, or a signal asks the program to end. */
  readonly onEnd: (signal: NodeJS.Signals) => void
}

/**
 * The terminal in raw mode on its alternate screen. However the program ends, the terminal gets back its text, its cursor
 * and its line editing.
 */
export class FullScreen {
  readonly #options: FullScreenOptions
  readonly #keys: KeyReader
  #shown: readonly string[] = []
  #isOpen = false
  #hasMouse = true
  #isBlocked = false

  constructor(options: FullScreenOptions) {
    this.#options = options
    this.#keys = new KeyReader((key) => (key === 'ctrl-z' ? this.#suspend(WHOLE_JOB) : options.onKey(key)))
  }

  get size(): { readonly columns: number; readonly rows: number } {
    const [columns, rows] = process.stdout.getWindowSize()
    // Some terminals report 0.
    return { columns: columns || 80, rows: rows || 24 }
  }

  open(): void {
    const { stdin, stdout } = process
    this.#enter()
    stdin.setEncoding('utf8').on('data', this.#onTyped).on('end', this.#onHangUp).resume()
    stdin.on('error', this.#onHangUp)
    stdout.on('resize', this.#onContinued)
    // Also when an exception ends the program.
    process.on('exit', this.#leave)
    for (const [signal, listener] of this.#signals) process.on(signal, listener)
  }

  /** Draws lines that fit the width, as many as the screen has rows. */
  draw(lines: readonly string[]): void {
    // Over a slow connection, pages are skipped until the last one has been sent.
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

  /** The next `draw` repaints everything, over what other programs have written to the screen. */
  forget(): void {
    this.#shown = []
  }

  /** Puts a text into the clipboard of the terminal, if the terminal lets programs do that (OSC 52). */
  copy(text: string): void {
    if (this.#isOpen) process.stdout.write(`\u001b]52;c;${Buffer.from(text).toString('base64')}\u0007`)
  }

  /** Whether clicks and the wheel come here. Otherwise they select text in the terminal. */
  set hasMouse(has: boolean) {
    this.#hasMouse = has
    if (this.#isOpen) process.stdout.write(has ? MOUSE_ON : MOUSE_OFF)
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

  /** SIGSTOP cannot be handled, so the shell took the terminal in raw mode; SIGCONT sets everything up again. */
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
    // Node.js caches the mode and skips setting the same one again, so it is switched off first.
    process.stdin.setRawMode(false)
    process.stdin.setRawMode(true)
    process.stdout.write(this.#hasMouse ? ENTER + MOUSE_ON : ENTER)
    this.#isOpen = true
  }

  readonly #leave = (): void => {
    if (!this.#isOpen) return
    this.#isOpen = false
    try {
      process.stdout.write(LEAVE)
      process.stdin.setRawMode(false)
    } catch {
      // The terminal is gone, so there is nothing to restore.
    }
  }

  #suspend(target: number): void {
    this.#leave()
    process.off('SIGTSTP', this.#onStop)
    // The kernel does not stop an orphaned process group, which nobody could continue; then this resumes at once.
    process.kill(target, 'SIGTSTP')
    setImmediate(() => this.#resume())
  }

  #resume(): void {
    process.off('SIGTSTP', this.#onStop).on('SIGTSTP', this.#onStop)
    this.#enter()
    this.#onContinued()
    // Node.js reads the size at this signal only, and a stopped program gets none. If the size has changed, 'resize' follows.
    process.kill(process.pid, 'SIGWINCH')
  }
}

/**
 * Ends by SIGHUP itself, the default for a hang-up. A normal exit makes Node.js restore the mode of the terminal, which
 * crashes with a segmentation fault when the terminal is gone (seen with 20.20).
 */
function dieOfHangUp(): void {
  process.kill(process.pid, 'SIGHUP')
}

/** pid 0: the whole process group, as Ctrl-Z does it, with its starter such as npx. */
const WHOLE_JOB = 0

/**
 * Alternate screen, no cursor, pastes in brackets, and no wrapping: a line that is wider than counted must not push the
 * others down.
 */
const ENTER = '\u001b[?1049h\u001b[?25l\u001b[?2004h\u001b[?7l'
/** Buttons and the wheel, as sequences that have no limit for the size of the screen. */
const MOUSE_ON = '\u001b[?1000h\u001b[?1006h'
const MOUSE_OFF = '\u001b[?1006l\u001b[?1000l'
const LEAVE = '\u001b[?1006l\u001b[?1000l\u001b[?2004l\u001b[?7h\u001b[?25h\u001b[?1049l'
const HOME = '\u001b[H'
/** Sent before the text: behind a text that fills the line it would erase the last character. */
const CLEAR_LINE = '\u001b[K'
const PLAIN = '\u001b[0m'
