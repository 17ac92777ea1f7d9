import type { InspectedHolder, InspectedRoom, Owner } from '../index.ts'
import { toldBy } from '../partition/member-value.ts'
import { lockKey, type NamedPartition, partitionOfRoster } from '../partition/names.ts'
import { processName } from '../room-watch/processes.ts'
import { lateMsOf } from '../room-watch/renewal-facts.ts'
import type { RoomWatch, Snapshot } from '../room-watch/room-watch.ts'
import { onePage, type PageNumber, ROW_TEXT } from './one-page.ts'
import { ownerJson, ownerText } from './ticket-json.ts'
import type { PartitionJson, PartitionKeyJson, PartitionProcessJson, PartitionsJson } from './view-json.ts'

export interface PartitionsRequest {
  readonly view: 'partitions'
  /** Part of a partition's name. */
  readonly search: string
  readonly page: PageNumber
}

/** Which process holds which keys of each partition. It is read from the rooms of the last look, without a further request. */
export function partitionsView(watch: RoomWatch, { search, page }: PartitionsRequest): PartitionsJson {
  const wanted = search.toLowerCase()
  const partitions = watch.snapshot.rooms.flatMap((roster) => {
    const partition = partitionOfRoster(roster.key)
    if (partition === undefined || !partition.name.toLowerCase().includes(wanted)) return []
    const members = membersIn(roster)
    // A group of a user whose key looks like that of a partition.
    return members.length === 0 ? [] : [{ id: roster.key, partition, members }]
  })
  return onePage(partitions, page, (each) => partitionJson(watch, each), PAGE_PARTITIONS)
}

/** Each has up to 4,096 keys. */
const PAGE_PARTITIONS = 5

/** What a member has told the others. */
interface ToldMember {
  readonly owner: Owner
  readonly weight: number
  readonly overdue: number
}

function membersIn({ holders }: InspectedRoom): readonly ToldMember[] {
  const members = new Map<string, ToldMember>()
  // While a member replaces its value it has two tickets. The one that came last counts.
  for (const { id, owner } of holders.toSorted((a, b) => b.heldMs - a.heldMs || Number(a.fence - b.fence))) {
    const told = toldBy(owner.value)
    if (told !== undefined)
      members.set(owner.member ?? id, { owner, weight: told.weight, overdue: told.overdue.length })
  }
  return [...members.values()]
}

interface Process {
  readonly owner: Owner
  weight: number | undefined
  overdue: number
  late: number
  readonly keys: { readonly room: InspectedRoom; readonly holder: InspectedHolder }[]
}

function partitionJson(
  watch: RoomWatch,
  { id, partition, members }: { id: string; partition: NamedPartition; members: readonly ToldMember[] },
): PartitionJson {
  const processes = new Map<string, Process>()
  const processOf = (owner: Owner): Process => {
    const name = processName(owner)
    const process = processes.get(name) ?? { owner, weight: undefined, overdue: 0, late: 0, keys: [] }
    processes.set(name, process)
    return process
  }
  for (const { owner, weight, overdue } of members.toSorted((a, b) => (nameOf(a) < nameOf(b) ? -1 : 1))) {
    const process = processOf(owner)
    process.weight = (process.weight ?? 0) + weight
    process.overdue += overdue
  }
  const isMember = (owner: Owner): boolean => processes.get(processName(owner))?.weight !== undefined
  const free: InspectedRoom[] = []
  for (const room of roomsOf(partition, watch.snapshot, isMember)) {
    const [holder] = room.holders
    const [waiter] = room.queue
    if (waiter !== undefined) processOf(waiter.owner)
    if (holder === undefined) free.push(room)
    else {
      const process = processOf(holder.owner)
      process.keys.push({ room, holder })
      if (lateMsOf(holder, watch.renewalsOf(holder.id)) !== undefined) process.late += 1
    }
  }
  const places = new Map(Array.from(processes.keys(), (name, place) => [name, place]))
  const keyJson = ({ key, queue: [waiter] }: InspectedRoom, holder?: InspectedHolder): PartitionKeyJson => {
    const fromAt = watch.snapshot.at - (holder?.heldMs ?? 0)
    const shown = [
      key.slice(lockKey(partition.name, '').length),
      String(holder?.fence ?? ''),
      fromAt,
    ] as const
    const to = waiter === undefined ? undefined : places.get(processName(waiter.owner))
    return to === undefined ? shown : [...shown, to]
  }
  const total = members.reduce((sum, { weight }) => sum + weight, 0)
  const processJson = ({ owner, weight, overdue, late, keys }: Process): PartitionProcessJson => ({
    owner: ownerJson(owner, ROW_TEXT),
    ...{ weight, overdue, late },
    due: total === 0 ? 0 : (partition.keyCount * (weight ?? 0)) / total,
    keys: keys.map(({ room, holder }) => keyJson(room, holder)),
  })
  const rows = Array.from(processes.values(), processJson)
  return {
    id,
    name: partition.name,
    keys: partition.keyCount,
    members: rows.filter(({ weight }) => weight !== undefined).length,
    held: rows.reduce((sum, { keys }) => sum + keys.length, 0),
    moving: rows.reduce((sum, { keys }, at) => sum + keys.filter(([, , , to = at]) => to !== at).length, 0),
    processes: rows,
    free: free.map((room) => keyJson(room)),
  }
}

function nameOf({ owner }: ToldMember): string {
  return ownerText(owner)
}

/**
 * The rooms of the keys. The dashboard does not know a list of keys, so it takes each key that begins like them and that a member
 * holds or waits for.
 */
function roomsOf(
  { name, keyCount, isNumbered }: NamedPartition,
  { rooms, isCut }: Snapshot,
  isMember: (owner: Owner) => boolean,
): readonly InspectedRoom[] {
  const prefix = lockKey(name, '')
  const begun = rooms.filter(({ key }) => key.startsWith(prefix))
  if (!isNumbered)
    return begun.filter(({ holders, queue }) =>
      [...holders, ...queue].some(({ limit, owner }) => limit === 1 && isMember(owner)),
    )
  const byKey = new Map(begun.map((room) => [room.key, room]))
  // In a look that was cut, a held key may have no room.
  return Array.from({ length: keyCount }, (_, number) => {
    const key = lockKey(name, number)
    return byKey.get(key) ?? { key, holders: [], queue: [], closedMs: 0 }
  }).filter(({ holders, queue }) => !isCut || holders.length + queue.length > 0)
}
