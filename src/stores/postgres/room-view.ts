import type { HolderView, RoomView, WaiterView } from '../../contract/store.ts'
import { HOLDER_STATES } from '../answers.ts'
import { readAnswer } from './answers.ts'

interface RoomJson {
  readonly holders: readonly (Omit<HolderView, 'fence' | 'state'> & {
    readonly fence: string
    readonly state: string
  })[]
  readonly queue: readonly WaiterView[]
  readonly closedMs: number
}

/** Undefined for a room in which everything has expired. */
export function roomView(key: string, json: string): RoomView | undefined {
  return readAnswer(json, () => viewOf(key, json))
}

function viewOf(key: string, json: string): RoomView | undefined {
  const { holders, queue, closedMs } = JSON.parse(json) as RoomJson
  if (holders.length === 0 && queue.length === 0 && closedMs === 0) return undefined
  return {
    key,
    holders: holders.map(({ fence, state, ...holder }) => ({
      ...holder,
      fence: BigInt(fence),
      state: HOLDER_STATES[state] ?? 'held',
    })),
    queue,
    closedMs,
  }
}
