import type { RawConnection } from './client-link.ts'
import type { KeptFence, ServerSetting } from './doctor-checks.ts'
import { replyCode } from './failures.ts'
import type { RoomNames } from './room-names.ts'
import { roomView } from './room-view.ts'
import { scannedNames } from './scanned-names.ts'
import { readByCommands } from './stored-rooms.ts'

/** Where the fences of a store are kept. */
export interface FencesPlace {
  readonly setting: ServerSetting
  readonly names: RoomNames
  /** The Redis key that the fences of this key are counted on from. Undefined if its holders may have higher fences than that. */
  fenceOf(key: string): string | undefined
}

/**
 * The stored last fences, by the names of their Redis keys, with the largest fence of a holder. In a cluster there is one for each
 * slot, of which some are looked at.
 */
export async function lastFencesOf(
  connection: RawConnection,
  place: FencesPlace,
): Promise<ReadonlyMap<string, KeptFence>> {
  const { setting, names } = place
  // Holders first: a key that is taken in between only raises the last fence.
  const held = await heldFences(connection, place)
  const listed = setting === 'cluster' ? await fenceNamesOf(connection, names) : [names.fence]
  const fences = new Map<string, KeptFence>()
  await Promise.all(
    [...new Set([...held.keys(), ...listed])].map(async (name) => {
      const kept = await keptFence(connection, name)
      if (kept !== UNKNOWN) fences.set(name, { kept, held: held.get(name) })
    }),
  )
  return fences
}

async function keptFence(
  connection: RawConnection,
  name: string,
): Promise<KeptFence['kept'] | typeof UNKNOWN> {
  try {
    const kept = await connection.send('GET', [name])
    return typeof kept === 'string' ? kept : undefined
  } catch (error) {
    const code = replyCode(error)
    if (code === undefined) throw error
    // Another server has the slot, or the user may not look.
    return code === 'WRONGTYPE' ? null : UNKNOWN
  }
}

const UNKNOWN = Symbol('unknown')

/** The largest fence of a holder, by the Redis key that it counts on from. Looks at some thousand keys, and only reads. */
async function heldFences(
  connection: RawConnection,
  { names, fenceOf }: FencesPlace,
): Promise<ReadonlyMap<string, bigint>> {
  const largest = new Map<string, bigint>()
  const pattern = names.pattern('')
  let looked = 0
  for await (const found of scannedNames(connection, { pattern, mostScans: MOST_SCANS })) {
    const rooms = found.filter((name) => fenceOf(names.keyOf(name)) !== undefined)
    looked += rooms.length
    const { nowMs, contents } = await roomsOf(connection, rooms)
    for (const [at, content] of contents.entries()) {
      const key = names.keyOf(rooms[at] ?? '')
      const fence = fenceOf(key)
      for (const holder of roomView(key, content, nowMs)?.holders ?? [])
        if (fence !== undefined && holder.fence > (largest.get(fence) ?? 0n)) largest.set(fence, holder.fence)
    }
    if (looked >= MOST_ROOMS) break
  }
  return largest
}

async function roomsOf(
  connection: RawConnection,
  names: readonly string[],
): ReturnType<typeof readByCommands> {
  try {
    return await readByCommands((command, args) => connection.send(command, args), names)
  } catch (error) {
    if (replyCode(error) === undefined) throw error
    // Another server has the slot, or the user may not look.
    return { nowMs: 0, contents: [] }
  }
}

const MOST_ROOMS = 5000

async function fenceNamesOf(connection: RawConnection, { prefix }: RoomNames): Promise<readonly string[]> {
  const names = new Set<string>()
  for await (const found of scannedNames(connection, {
    pattern: `${prefix}{*}fence`,
    mostScans: MOST_SCANS,
  })) {
    for (const name of found) names.add(name)
    if (names.size >= MOST_FENCES) break
  }
  return [...names].slice(0, MOST_FENCES)
}

const MOST_SCANS = 50
const MOST_FENCES = 2000
