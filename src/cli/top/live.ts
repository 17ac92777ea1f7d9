import type { Locks } from '../../index.ts'
import { type RoomWatch, type Snapshot, watchRooms } from '../../room-watch/room-watch.ts'
import { EXIT, exitCodeOf } from '../exit-codes.ts'
import { paintFor } from '../terminal.ts'
import { TableColumns } from './columns.ts'
import { FullScreen } from './full-screen.ts'
import { filtered, type Row, type RowOrder, rowsOf, sorted } from './rows.ts'
import { frameOf } from './screen.ts'
import { type Sums, sumsOf } from './sums.ts'
import { firstView, pressed, type TopView } from './view.ts'

export interface LiveOptions {
  readonly store: string
  readonly prefix: string
  readonly everyMs: number
  readonly order: RowOrder
}

/** Shows the rooms until the user quits. Resolves with the exit code. */
export async function showLive(locks: Pick<Locks, 'inspect'>, options: LiveOptions): Promise<number> {
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
    if (key === 'ctrl-c' || (key === 'q' && typing === undefined && page === 'list')) {
      this.#options.end(EXIT.ok)
      return
    }
    if (key === 'ctrl-l') this.#screen.forget()
    if (key === ' ' && typing === undefined) this.#watch.lookNow()
    const before = this.#view
    this.#view = pressed(before, key, { rows: this.#rows, pageSize: this.#pageSize })
    if (before.order !== this.#view.order || before.filter !== this.#view.filter) this.#arrange()
    // Show what changed during the pause.
    if (before.isPaused && !this.#view.isPaused) this.look(this.#watch.snapshot)
    else this.#draw()
  }

  #arrange(): void {
    this.#rows = sorted(filtered(this.#all, this.#view.filter), this.#view.order)
  }

  #draw(): void {
    const { selected, page } = this.#view
    const { lines, top, pageSize } = frameOf({
      ...this.#options,
      view: this.#view,
      snapshot: this.#snapshot,
      sums: this.#sums,
      rows: this.#rows,
      renewalsOf: (id) => this.#watch.renewalsOf(id),
      history: page === 'key' && selected !== undefined ? this.#watch.historyOf(selected) : undefined,
      columns: this.#columns,
      size: this.#screen.size,
      paint: this.#paint,
    })
    this.#view = { ...this.#view, top }
    this.#pageSize = pageSize
    this.#screen.draw(lines)
  }
}
