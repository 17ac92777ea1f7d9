import type { InspectRequest, RoomPage, RoomView } from '../../contract/store.ts'
import type { RoomNames } from './room-names.ts'
import { roomView } from './room-view.ts'
import { type Place, SCAN_START, type Servers } from './servers.ts'

interface Library {
  readonly servers: Servers
  readonly names: RoomNames
}

/** Some of the rooms whose key begins with a prefix, and where the next ones are. */
export async function roomPage(
  { servers, names }: Library,
  { prefix, cursor, count }: InspectRequest,
): Promise<RoomPage> {
  let { scan, after } = cursor === undefined ? FIRST_PAGE : (JSON.parse(cursor) as PageStart)
  const look = (keys: readonly string[]): Promise<readonly RoomView[]> => lookAt({ servers, names }, keys)
  const exact = cursor === undefined ? await look([prefix]) : []
  if (exact.length > 0) return { rooms: exact, next: JSON.stringify(FIRST_PAGE) }
  const request = { pattern: names.pattern(prefix), count: SCANNED_TOGETHER }
  for (let scans = 0; scans < MOST_SCANS; scans += 1) {
    const found = await servers.scan(scan, request)
    if (found.at !== scan) after = ''
    scan = found.at
    const keys = [...new Set(found.names.map((name) => names.keyOf(name)))]
    // In an order of our own, so that a page can go on inside what one SCAN returned.
    const rest = keys.filter((key) => key > after && key !== prefix).sort()
    const page = rest.slice(0, count)
    const rooms = await look(page)
    if (rest.length > count) return { rooms, next: JSON.stringify({ scan, after: page.at(-1) }) }
    if (found.next === undefined) return { rooms, next: undefined }
    scan = found.next
    after = ''
    if (rooms.length > 0) return { rooms, next: JSON.stringify({ scan, after }) }
  }
  return { rooms: [], next: JSON.stringify({ scan, after }) }
}

/** Where a page of rooms starts: where a scan goes on, and after which of the keys that it finds there. */
interface PageStart {
  readonly scan: string
  readonly after: string
}

const FIRST_PAGE: PageStart = { scan: SCAN_START, after: '' }

async function lookAt(library: Library, keys: readonly string[]): Promise<readonly RoomView[]> {
  const parts = library.servers.divide(keys.map((key) => ({ key })))
  const found = await Promise.all(parts.map(([place, there]) => lookIn(library, place, there)))
  return found.length < 2 ? found.flat() : found.flat().sort((one, other) => (one.key < other.key ? -1 : 1))
}

async function lookIn(
  { servers, names }: Library,
  place: Place,
  rooms: readonly { readonly key: string }[],
): Promise<readonly RoomView[]> {
  const args = ['', String(rooms.length), ...rooms.map(({ key }) => names.room(key))]
  const [nowMs, ...contents] = (await place.runUnproven(servers.scripts.inspect, args)) as [
    string,
    ...(string | string[])[],
  ]
  return rooms.flatMap(({ key }, index) => roomView(key, contents[index] ?? '', Number(nowMs)) ?? [])
}

/** How many keys of the database one SCAN looks at: a fraction of a millisecond. */
const SCANNED_TOGETHER = 1000
/** How many SCANs that find nothing are made for one page. */
const MOST_SCANS = 20
