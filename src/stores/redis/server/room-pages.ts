import type { InspectRequest, RoomPage, RoomView } from '../../../contract/store.ts'
import { StoreError } from '../../../errors.ts'
import { layoutErrorOf } from './failures.ts'
import type { RoomNames } from './room-names.ts'
import { foreignLayoutOf, roomView } from './room-view.ts'
import { type Partition, SCAN_START, type Topology } from './topology.ts'

/** Where the rooms of a store are. */
export interface RoomSource {
  readonly topology: Topology
  readonly names: RoomNames
}

/** Some of the rooms whose key begins with a prefix, and where the next ones are. */
export async function roomPage(
  { topology, names }: RoomSource,
  { prefix, exact: isExact, cursor, count }: InspectRequest,
): Promise<RoomPage> {
  if (isExact === true) return peekAt({ topology, names }, prefix)
  const look = (keys: readonly string[]): Promise<readonly RoomView[]> => lookAt({ topology, names }, keys)
  const exact = cursor === undefined ? await look([prefix]) : []
  if (exact.length > 0) return { rooms: exact, next: JSON.stringify(FIRST_PAGE) }
  let { found, scan, scans, mark } = cursor === undefined ? FIRST_PAGE : (JSON.parse(cursor) as PageStart)
  const request = { pattern: names.pattern(prefix), count: SCANNED_TOGETHER }
  for (let looks = 0; looks < MOST_LOOKS; looks += 1) {
    if (found.length === 0 && scan !== undefined) {
      scans += 1
      if (scans > MOST_SCANS_IN_ALL) throw new StoreError('store-refused', ENDLESS)
      const { at, names: seen, next } = await topology.scan(scan, request)
      // No SCAN comes back to where it was.
      if (next !== undefined && (next === at || next === mark)) throw new StoreError('store-refused', ENDLESS)
      if (Number.isInteger(Math.log2(scans))) mark = at
      const keys = new Set(seen.filter(isOurs).map((name) => names.keyOf(name)))
      keys.delete(prefix)
      found = [...keys].sort()
      scan = next
    }
    const rooms = await look(found.slice(0, count))
    found = found.slice(count)
    const isLast = found.length === 0 && scan === undefined
    if (isLast || rooms.length > 0)
      return { rooms, next: isLast ? undefined : JSON.stringify({ found, scan, scans, mark }) }
  }
  return { rooms: [], next: JSON.stringify({ found, scan, scans, mark }) }
}

/** Where a page of rooms starts: with the keys that a scan has found and that no page has shown, and where the scan goes on. */
interface PageStart {
  /**
   * The page after does not ask for them again: the same SCAN finds other keys as soon as Redis has made its table of keys larger
   * or smaller.
   */
  readonly found: readonly string[]
  /** Undefined after the last scan. */
  readonly scan?: string | undefined
  /** How many scans were made for all pages until now. */
  readonly scans: number
  /** A place where an earlier scan went on. A scan that comes back to it goes round in circles (Brent's algorithm). */
  readonly mark: string
}

const FIRST_PAGE: PageStart = { found: [], scan: SCAN_START, scans: 0, mark: SCAN_START }

async function lookAt(source: RoomSource, keys: readonly string[]): Promise<readonly RoomView[]> {
  const parts = source.topology.divide(keys.map((key) => ({ key })))
  const found = await Promise.all(parts.map(([partition, there]) => lookIn(source.names, partition, there)))
  // A listing goes on beside a key that holds no room of this layout.
  const rooms = found.flat().flatMap(({ view }) => view ?? [])
  return found.length < 2 ? rooms : rooms.sort((one, other) => (one.key < other.key ? -1 : 1))
}

async function peekAt({ topology, names }: RoomSource, key: string): Promise<RoomPage> {
  const [[partition] = []] = topology.divide([{ key }])
  const [{ view, foreignLayout } = NOTHING] =
    partition === undefined ? [] : await lookIn(names, partition, [{ key }])
  // Without an error, the caller would take the key to be free.
  if (foreignLayout !== undefined) throw layoutErrorOf(key, names.room(key), foreignLayout)
  return { rooms: view === undefined ? [] : [view], next: undefined }
}

async function lookIn(
  names: RoomNames,
  partition: Partition,
  rooms: readonly { readonly key: string }[],
): Promise<readonly SeenRoom[]> {
  const { nowMs, contents } = await partition.read(rooms.map(({ key }) => names.room(key)))
  return rooms.map(({ key }, index) => {
    const content = contents[index] ?? []
    const view = roomView(key, content, nowMs)
    return { view, foreignLayout: view === undefined ? foreignLayoutOf(content) : undefined }
  })
}

interface SeenRoom {
  readonly view: RoomView | undefined
  readonly foreignLayout: string | undefined
}

const NOTHING: SeenRoom = { view: undefined, foreignLayout: undefined }

/** The names of our own rooms are never longer. A page shows no other ones, so that its size stays readable. */
function isOurs(name: string): boolean {
  return name.length <= LONGEST_NAME
}

const LONGEST_NAME = 10_000
/** How many keys of the database one SCAN looks at: a fraction of a millisecond. */
const SCANNED_TOGETHER = 1000
/** How often one page looks for rooms before it is empty. */
const MOST_LOOKS = 20
/** How many are made for a whole listing: enough for a thousand million keys. */
const MOST_SCANS_IN_ALL = 1_000_000

const ENDLESS =
  'The keys of the Redis server cannot be listed, because its SCAN does not come to an end. Check that it is a Redis or Valkey server, and what lies in between.'
