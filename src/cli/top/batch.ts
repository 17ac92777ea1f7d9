import { type RoomWatch, type Snapshot, type WatchedLocks, watchRooms } from '../../room-watch/room-watch.ts'
import { EXIT } from '../exit-codes.ts'
import { roomJson } from '../room-text.ts'
import { complain, paintFor, print, roomOnScreen } from '../terminal.ts'
import { json } from '../text.ts'
import { TableColumns } from './columns.ts'
import { headerLines } from './header.ts'
import type { LiveOptions } from './live.ts'
import { type Row, rowsOf, sorted } from './rows.ts'
import { type Sums, sumsOf } from './sums.ts'

export interface BatchOptions extends LiveOptions {
  /** How many looks; `undefined`: until the process is ended. */
  readonly count: number | undefined
  readonly asJson: boolean
}

/** Prints one look after another. Resolves with the exit code. */
export async function printLooks(locks: WatchedLocks, options: BatchOptions): Promise<number> {
  const { prefix, everyMs, count } = options
  const columns = new TableColumns()
  let watch: RoomWatch | undefined
  let printed = 0
  let isAway = false
  try {
    return await new Promise<number>((resolve) => {
      const onSnapshot = (snapshot: Snapshot): void => {
        const { store } = snapshot
        if (store.tag === 'away') {
          if (!isAway) complain(store.message)
          isAway = true
          // With a number of looks the command ends instead of waiting for the store.
          if (count !== undefined) resolve(EXIT.storeUnavailable)
          return
        }
        isAway = false
        printLook(snapshot, {
          ...options,
          columns,
          watch: { renewalsOf: (id) => watch?.renewalsOf(id) },
          sums: sumsOf(snapshot.rooms, watch?.totals ?? []),
          isFirst: printed === 0,
        })
        printed += 1
        if (printed === count) resolve(EXIT.ok)
      }
      // Nobody looks at a screen that may be old, so a slow answer is waited for.
      const silentMs = count === undefined ? undefined : Number.POSITIVE_INFINITY
      watch = watchRooms(locks, { prefix, everyMs, keepAlive: true, silentMs, onSnapshot })
    })
  } finally {
    watch?.stop()
  }
}

interface LookFacts extends BatchOptions {
  readonly columns: TableColumns
  readonly watch: Pick<RoomWatch, 'renewalsOf'>
  readonly sums: Sums
  readonly isFirst: boolean
}

function printLook(snapshot: Snapshot, look: LookFacts): void {
  const rows = sorted(rowsOf(snapshot.rooms, look.watch), look.order)
  if (look.asJson) {
    print(json(lookJson(snapshot, { ...look, rows })))
    return
  }
  if (!look.isFirst) print('')
  // In a terminal lines are cut to its width; in a file they are not.
  const room = roomOnScreen()
  const paint = paintFor(process.stdout)
  for (const line of headerLines({ ...look, snapshot }, { room, paint })) print(line)
  if (rows.length === 0) return
  const [titles = '', ...lines] = look.columns.lines(rows, { room, order: look.order })
  print('')
  print(paint('bold', titles.trimEnd()))
  for (const line of lines) print(line.trimEnd())
}

function lookJson(
  { at, isCut, caveats, store }: Snapshot,
  { sums, rows }: { readonly sums: Sums; readonly rows: readonly Row[] },
): object {
  const { keys, held, offered, waiting, longestMs, handOvers, expired } = sums
  return {
    at,
    lookMs: store.tag === 'present' ? store.lookMs : undefined,
    keys,
    isCut,
    caveats,
    held,
    offered,
    waiting,
    longestWaitMs: longestMs ?? 0,
    handOversPerSecond: handOvers ?? null,
    expiredInLastMinute: expired,
    rooms: rows.map(({ room }) => roomJson(room)),
  }
}
