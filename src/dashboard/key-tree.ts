import type { InspectedRoom } from '../index.ts'

/** A line of the tree of keys: a group of keys that begin alike, or a key. */
export type TreeLine =
  | {
      readonly tag: 'group'
      readonly path: string
      readonly depth: number
      readonly isOpen: boolean
      readonly rooms: readonly InspectedRoom[]
    }
  | { readonly tag: 'key'; readonly depth: number; readonly room: InspectedRoom }

/**
 * Groups keys by their parts, up to and with each `:`. The keys of a group are listed below it while it is open. A key that begins
 * like no other one stands by itself. A group stands where the first of its keys would stand.
 */
export function treeOf(
  rooms: readonly InspectedRoom[],
  open: ReadonlySet<string>,
  { path, depth }: { readonly path: string; readonly depth: number } = { path: '', depth: 0 },
): readonly TreeLine[] {
  const groups = new Map<string, InspectedRoom[]>()
  for (const room of rooms) {
    const end = room.key.indexOf(':', path.length)
    const name = end === -1 ? room.key : room.key.slice(0, end + 1)
    const group = groups.get(name)
    if (group === undefined) groups.set(name, [room])
    else group.push(room)
  }
  return [...groups].flatMap(([name, members]): readonly TreeLine[] => {
    const [room] = members
    if (room !== undefined && members.length === 1) return [{ tag: 'key', depth, room }]
    const isOpen = open.has(name)
    const below = isOpen ? treeOf(members, open, { path: name, depth: depth + 1 }) : []
    return [{ tag: 'group', path: name, depth, isOpen, rooms: members }, ...below]
  })
}
