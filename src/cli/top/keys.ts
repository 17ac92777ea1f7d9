/** A typed character, or the name of a key: `up`, `enter`, `ctrl-c`. */
export type Key = string

/** Parses the input of a terminal in raw mode into keys. */
export class KeyReader {
  readonly #onKey: (key: Key) => void
  #pending = ''
  #escapeTimer: NodeJS.Timeout | undefined

  constructor(onKey: (key: Key) => void) {
    this.#onKey = onKey
  }

  push(typed: string): void {
    clearTimeout(this.#escapeTimer)
    const text = this.#pending + typed
    const unfinished = UNFINISHED.exec(text)?.[0] ?? ''
    this.#pending = unfinished
    this.#read(text.slice(0, text.length - unfinished.length))
    // The Escape key sends the byte that all sequences begin with, and a network may split a sequence: wait a little.
    if (unfinished !== '') this.#escapeTimer = setTimeout(() => this.#giveUp(), ESCAPE_MS).unref()
  }

  #giveUp(): void {
    const text = this.#pending
    this.#pending = ''
    if (text === ESCAPE) this.#onKey('escape')
    else this.#read(text)
  }

  #read(text: string): void {
    for (const [sequence] of text.matchAll(SEQUENCES)) {
      const key = NAMES.get(sequence) ?? (PRINTABLE.test(sequence) ? sequence : undefined)
      if (key !== undefined) this.#onKey(key)
    }
  }
}

const ESCAPE = '\u001b'
const ESCAPE_MS = 50

/** A control sequence, one of the older kind, Alt with a key, or one character (ECMA-48 §5.4). */
const SEQUENCES = new RegExp(`${ESCAPE}(?:\\[[0-?]*[ -/]*[@-~]|O[@-~]|[^[O])|[\\s\\S]`, 'gu')
const UNFINISHED = new RegExp(`${ESCAPE}(?:\\[[0-?]*[ -/]*|O)?$`)
const PRINTABLE = /^[^\p{C}\p{Zl}\p{Zp}]$/u

const NAMES: ReadonlyMap<string, Key> = new Map([
  ...(['\u001b[A', '\u001bOA'] as const).map((sequence) => [sequence, 'up'] as const),
  ...(['\u001b[B', '\u001bOB'] as const).map((sequence) => [sequence, 'down'] as const),
  ...(['\u001b[C', '\u001bOC'] as const).map((sequence) => [sequence, 'right'] as const),
  ...(['\u001b[D', '\u001bOD'] as const).map((sequence) => [sequence, 'left'] as const),
  ...(['\u001b[H', '\u001bOH', '\u001b[1~', '\u001b[7~'] as const).map(
    (sequence) => [sequence, 'home'] as const,
  ),
  ...(['\u001b[F', '\u001bOF', '\u001b[4~', '\u001b[8~'] as const).map(
    (sequence) => [sequence, 'end'] as const,
  ),
  ['\u001b[5~', 'page-up'],
  ['\u001b[6~', 'page-down'],
  ['\u001b\u001b', 'escape'],
  ['\r', 'enter'],
  ['\n', 'enter'],
  ['\u007f', 'backspace'],
  ['\b', 'backspace'],
  ['\u0003', 'ctrl-c'],
  ['\u000c', 'ctrl-l'],
  ['\u0015', 'ctrl-u'],
  ['\u0017', 'ctrl-w'],
  ['\u001a', 'ctrl-z'],
])
