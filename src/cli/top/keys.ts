/** A typed character, or the name of a key: `up`, `enter`, `ctrl-c`, `f9`, `wheel-up`, or a click: see {@link clickOf}. */
export type Key = string

/** Where the mouse was clicked, counted from 0 at the upper left. Undefined for every other key. */
export function clickOf(key: Key): { readonly column: number; readonly line: number } | undefined {
  const [, column, line] = /^click (\d+) (\d+)$/.exec(key) ?? []
  return column === undefined ? undefined : { column: Number(column), line: Number(line) }
}

/** Parses the input of a terminal in raw mode into keys. */
export class KeyReader {
  readonly #onKey: (key: Key) => void
  #pending = ''
  #escapeTimer: NodeJS.Timeout | undefined
  #isPasting = false
  /** A line break or a tab in a paste, before which there is text. */
  #hasGap = false

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
    // A paste contains no Escape key.
    if (unfinished !== '' && !this.#isPasting)
      this.#escapeTimer = setTimeout(() => this.#giveUp(), ESCAPE_MS).unref()
  }

  #giveUp(): void {
    const text = this.#pending
    this.#pending = ''
    // The beginning of a longer sequence is no typed text: its letters would be keys that act.
    if (text.endsWith(ESCAPE)) this.#onKey('escape')
  }

  #read(text: string): void {
    for (const [sequence] of text.matchAll(SEQUENCES)) {
      if (sequence === PASTE_BEGINS || sequence === PASTE_ENDS) {
        this.#isPasting = sequence === PASTE_BEGINS
        this.#hasGap = false
        continue
      }
      // Ctrl-C always quits, also if the end of a paste was lost.
      if (this.#isPasting && sequence !== CTRL_C) {
        this.#paste(sequence)
        continue
      }
      const key =
        NAMES.get(sequence) ?? mouseKeyOf(sequence) ?? (PRINTABLE.test(sequence) ? sequence : undefined)
      if (key !== undefined) this.#onKey(key)
    }
  }

  /** A line break becomes a space: as Enter it would say yes to a question. One at the end is left out. */
  #paste(sequence: string): void {
    if (/^[\r\n\t]$/.test(sequence)) this.#hasGap = true
    if (!PRINTABLE.test(sequence)) return
    if (this.#hasGap) this.#onKey(' ')
    this.#hasGap = false
    this.#onKey(sequence)
  }
}

/** Of the mouse the first button and the wheel, when they go down (xterm's SGR mode). */
function mouseKeyOf(sequence: string): Key | undefined {
  const [, button, column, line] = MOUSE.exec(sequence) ?? []
  switch (button) {
    case '0':
      return `click ${Number(column) - 1} ${Number(line) - 1}`
    case '64':
      return 'wheel-up'
    case '65':
      return 'wheel-down'
    default:
      return undefined
  }
}

const ESCAPE = '\u001b'
const MOUSE = new RegExp(`^${ESCAPE}\\[<(\\d{1,4});(\\d{1,5});(\\d{1,5})M$`)
const ESCAPE_MS = 50
const CTRL_C = '\u0003'
/** What a terminal sends around a paste in its bracketed mode. */
const PASTE_BEGINS = `${ESCAPE}[200~`
const PASTE_ENDS = `${ESCAPE}[201~`

/**
 * F1 to F5 of the Linux console, a key with Shift in rxvt (`ESC [ 7 $`), a control sequence, one of the older kind (in Konsole
 * with modifiers: `ESC O 2 R`), Alt with a key, or one character (ECMA-48 §5.4). Some terminals send a second Escape before a
 * sequence for Alt.
 */
const SEQUENCES = new RegExp(
  `${ESCAPE}(?:${ESCAPE}?(?:\\[\\[[A-E]|\\[\\d+\\$|\\[[0-?]*[ -/]*[@-~]|O[0-?]*[@-~])|[^[O])|[\\s\\S]`,
  'gu',
)
const UNFINISHED = new RegExp(`${ESCAPE}{1,2}(?:\\[[0-?]*[ -/]*|\\[\\[|O[0-?]*)?$`)
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
  [`${ESCAPE}${ESCAPE}`, 'escape'],
  ...(['OP', '[11~', '[[A'] as const).map((sequence) => [`\u001b${sequence}`, 'f1'] as const),
  ...(['OR', '[13~', '[[C'] as const).map((sequence) => [`\u001b${sequence}`, 'f3'] as const),
  ...(['OS', '[14~', '[[D'] as const).map((sequence) => [`\u001b${sequence}`, 'f4'] as const),
  ['\u001b[17~', 'f6'],
  ['\u001b[20~', 'f9'],
  ['\u001b[21~', 'f10'],
  ['\r', 'enter'],
  ['\n', 'enter'],
  ['\u007f', 'backspace'],
  ['\b', 'backspace'],
  [CTRL_C, 'ctrl-c'],
  ['\u0004', 'ctrl-d'],
  ['\u000b', 'ctrl-k'],
  ['\u000c', 'ctrl-l'],
  ['\u0015', 'ctrl-u'],
  ['\u0017', 'ctrl-w'],
  ['\u001a', 'ctrl-z'],
])
