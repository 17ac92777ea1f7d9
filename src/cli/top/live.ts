import { explained } from '../../base/explained.ts'
import { type RoomWatch, type Snapshot, type WatchedLocks, watchRooms } from '../../room-watch/room-watch.ts'
import { EXIT, exitCodeOf } from '../exit-codes.ts'
import { paintFor } from '../terminal.ts'
import { plain } from '../text.ts'
import { TableColumns } from './columns.ts'
import { type ActionNotice, LEAST_ROWS_TO_ASK } from './frame.ts'
import { FullScreen } from './full-screen.ts'
import { counted } from './header.ts'
import { filtered, type Row, type RowOrder, rowsOf, sorted } from './rows.ts'
import { frameOf, MARK } from './screen.ts'
import { type Sums, sumsOf } from './sums.ts'
import { EVICT, firstView, pressed, quits, type TopView, type Typing } from './view.ts'

export interface LiveOptions {
  readonly store: string
  readonly prefix: string
  readonly everyMs: number
  readonly order: RowOrder
  /** Takes a key from those who hold it. Resolves with the ids that were removed. */
  readonly evict: Evict
}

export type Evict = (key: string, ids: readonly string[], reason: string) => Promise<readonly string[]>

/** Shows the rooms until the user quits. Resolves with the exit code. */
export async function showLive(locks: WatchedLocks, options: LiveOptions): Promise<number> {
  const { prefix, everyMs } = options
  let live: LiveScreen | undefined
  const watch = watchRooms(locks, {
    prefix,
    everyMs,
    onSnapshot: (snapshot) => live?.look(snapshot),
  })
  try {
    return await new Promise<number>((resolve) => {
      live = new LiveScreen(watch, { ...options, end: resolve })
    })
  } finally {
    watch.stop()
    live?.close()
  }
}

class LiveScreen {
  readonly #watch: RoomWatch
  readonly #options: LiveOptions & { readonly end: (exitCode: number) => void }
  readonly #screen: FullScreen
  readonly #columns: TableColumns = new TableColumns()
  readonly #paint = paintFor(process.stdout)
  #view: TopView
  #snapshot: Snapshot
  #sums: Sums
  /** The rows of the whole snapshot, sorted by key. */
  #all: readonly Row[] = []
  #rows: readonly Row[] = []
  #pageSize = 1
  #titlesLine = 0
  #notice: ActionNotice | undefined

  constructor(watch: RoomWatch, options: LiveOptions & { readonly end: (exitCode: number) => void }) {
    this.#watch = watch
    this.#options = options
    this.#view = firstView(options.order)
    this.#snapshot = watch.snapshot
    this.#sums = sumsOf([], [])
    this.#screen = new FullScreen({
      onKey: (key) => this.#press(key),
      onStale: () => this.#draw(),
      onEnd: (signal) => options.end(exitCodeOf(signal)),
    })
    this.#screen.open()
    this.#draw()
  }

  look(snapshot: Snapshot): void {
    if (this.#view.isPaused) return
    const isNew = snapshot.rooms !== this.#snapshot.rooms
    this.#snapshot = snapshot
    if (isNew) {
      this.#sums = sumsOf(snapshot.rooms, this.#watch.totals)
      this.#all = rowsOf(snapshot.rooms, this.#watch)
      this.#arrange()
    }
    this.#draw()
  }

  close(): void {
    this.#screen.close()
  }

  #press(key: string): void {
    const { typing, page } = this.#view
    if (quits(key, this.#view)) return this.#options.end(EXIT.ok)
    if (key === 'ctrl-l') this.#screen.forget()
    const asks = EVICT.includes(key) && typing === undefined && page !== 'help'
    const answers = key === 'enter' && typing !== undefined && typing.tag !== 'filter'
    // On a screen without a line for questions nothing can be asked, and nobody sees what Enter would do. A filter does no harm.
    if ((asks || answers) && this.#screen.size.rows < LEAST_ROWS_TO_ASK) return
    if (key === ' ' && typing === undefined) this.#watch.lookNow()
    const before = this.#view
    this.#notice = undefined
    this.#view = pressed(before, key, {
      rows: this.#rows,
      pageSize: this.#pageSize,
      titlesLine: this.#titlesLine,
      // The table begins behind the place for the mark.
      columnAt: (place) => this.#columns.at(place - MARK),
    })
    if (before.hasMouse !== this.#view.hasMouse) this.#screen.hasMouse = this.#view.hasMouse
    if (key === 'c' && typing === undefined && page !== 'help') this.#copy()
    if (key === 'enter' && typing?.tag === 'evict') void this.#evict(typing)
    if (asks && this.#view.typing === undefined) this.#tell('Mark a key that is held first.', { isBad: true })
    if (before.order !== this.#view.order || before.filter !== this.#view.filter) this.#arrange()
    // A line that the filter hides is not marked any more.
    if (
      before.filter !== this.#view.filter &&
      !this.#rows.some(({ key: shown }) => shown === this.#view.selected)
    )
      this.#view = { ...this.#view, selected: undefined }
    // Show what changed during the pause.
    if (before.isPaused && !this.#view.isPaused) this.look(this.#watch.snapshot)
    else this.#draw()
  }

  #copy(): void {
    const { selected } = this.#view
    if (selected === undefined) return this.#tell('Mark a line first.', { isBad: true })
    this.#screen.copy(selected)
    this.#tell(`Copied ${plain(selected)}, if this terminal lets programs copy.`, { isBad: false })
  }

  async #evict({ key, holders, text }: Extract<Typing, { tag: 'evict' }>): Promise<void> {
    const reason = text.trim()
    if (reason === '') return this.#tell('Nobody was evicted: say why.', { isBad: true })
    this.#tell(`Evicting from ${plain(key)} …`, { isBad: false })
    try {
      const ids = holders.map(({ id }) => id)
      const evicted = await this.#options.evict(key, ids, reason)
      this.#watch.noteEviction(key, evicted, reason)
      this.#watch.lookNow()
      const found =
        evicted.length === 0 ? 'The holder had gone' : `Evicted ${counted(evicted.length, 'holder')}`
      this.#tell(`${found} from ${plain(key)}.`, { isBad: evicted.length === 0 })
    } catch (error) {
      // One of several holders may be evicted, or the answer was lost.
      this.#tell(`The eviction is not confirmed. ${plain(explained(error))}`, { isBad: true })
    }
  }

  #tell(text: string, { isBad }: { readonly isBad: boolean }): void {
    this.#notice = { text, isBad }
    this.#draw()
  }

  #arrange(): void {
    this.#rows = sorted(filtered(this.#all, this.#view.filter), this.#view.order)
  }

  #draw(): void {
    const { selected, page } = this.#view
    const { lines, top, pageSize, above } = frameOf({
      ...this.#options,
      view: this.#view,
      snapshot: this.#snapshot,
      sums: this.#sums,
      rows: this.#rows,
      renewalsOf: (id) => this.#watch.renewalsOf(id),
      history: page === 'key' && selected !== undefined ? this.#watch.historyOf(selected) : undefined,
      columns: this.#columns,
      notice: this.#notice,
      size: this.#screen.size,
      paint: this.#paint,
    })
    this.#view = { ...this.#view, top }
    this.#pageSize = pageSize
    this.#titlesLine = above
    this.#screen.draw(lines)
  }
}
