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
  let { scan, after, scans, mark } = cursor === undefined ? FIRST_PAGE : (JSON.parse(cursor) as PageStart)
  if (isExact === true) return peekAt({ topology, names }, prefix)
  const look = (keys: readonly string[]): Promise<readonly RoomView[]> => lookAt({ topology, names }, keys)
  const exact = cursor === undefined ? await look([prefix]) : []
  if (exact.length > 0) return { rooms: exact, next: JSON.stringify(FIRST_PAGE) }
  const request = { pattern: names.pattern(prefix), count: SCANNED_TOGETHER }
  for (let scansOfPage = 0; scansOfPage < MOST_SCANS; scansOfPage += 1) {
    scans += 1
    if (scans > MOST_SCANS_IN_ALL) throw new StoreError('store-refused', ENDLESS)
    const found = await topology.scan(scan, request)
    if (found.at !== scan) after = ''
    scan = found.at
    const keys = [...new Set(found.names.filter(isOurs).map((name) => names.keyOf(name)))]
    // In an order of our own, so that a page can go on inside what one SCAN returned.
    const rest = keys.filter((key) => key > after && key !== prefix).sort()
    const page = rest.slice(0, count)
    const rooms = await look(page)
    if (rest.length > count) return { rooms, next: JSON.stringify({ scan, after: page.at(-1), scans, mark }) }
    if (found.next === undefined) return { rooms, next: undefined }
    // No SCAN comes back to where it was.
    if (found.next === scan || found.next === mark) throw new StoreError('store-refused', ENDLESS)
    if (Number.isInteger(Math.log2(scans))) mark = scan
    scan = found.next
    after = ''
    if (rooms.length > 0) return { rooms, next: JSON.stringify({ scan, after, scans, mark }) }
  }
  return { rooms: [], next: JSON.stringify({ scan, after, scans, mark }) }
}

/** Where a page of rooms starts: where a scan goes on, and after which of the keys that it finds there. */
interface PageStart {
  readonly scan: string
  readonly after: string
  /** How many scans were made for all pages until now. */
  readonly scans: number
  /** A place where an earlier scan went on. A scan that comes back to it goes round in circles (Brent's algorithm). */
  readonly mark: string
}

const FIRST_PAGE: PageStart = { scan: SCAN_START, after: '', scans: 0, mark: SCAN_START }

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
/** How many SCANs that find nothing are made for one page. */
const MOST_SCANS = 20
/** How many are made for a whole listing: enough for a thousand million keys. */
const MOST_SCANS_IN_ALL = 1_000_000

const ENDLESS =
  'The keys of the Redis server cannot be listed, because its SCAN does not come to an end. Check that it is a Redis or Valkey server, and what lies in between.'
