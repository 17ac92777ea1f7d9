import { Socket } from 'node:net'
import { onTestFinished, test, vi } from 'vitest'
import { SqliteStore } from '../../../src/stores/sqlite/sqlite-store.ts'
import { PROCESSES, sameFateInGroups } from '../group-histories.ts'
import { engines, freshFolder } from './lock-folder.ts'

const folder = freshFolder()

test.each(
  engines.flatMap((engine) => [
    [engine, 'that hear messages', true] as const,
    [engine, 'that hear none', false] as const,
  ]),
)('with %s waiters of processes %s have the same fate in groups and alone', async (engine, name, listen) => {
  let ms = 0
  const storeOf = (kind: string, leastGroup: number) => {
    const path = `${folder}/${engine === 'node:sqlite' ? 'runtime' : 'package'} ${name} ${kind}.db`
    return new SqliteStore({ path, engine, boot: 'test', now: () => ({ ms, us: ms * 1000 }) }, { leastGroup })
  }
  const pairs = Array.from({ length: PROCESSES }, () => ({
    groups: storeOf('groups', 2),
    alone: storeOf('alone', Number.POSITIVE_INFINITY),
  }))
  // The message is the lease only over an open connection. A slow machine would let one of the two stores close its own sooner.
  const idle = vi.spyOn(Socket.prototype, 'setTimeout').mockReturnThis()
  onTestFinished(() => idle.mockRestore())
  if (listen)
    for (const { groups, alone } of pairs)
      await Promise.all([groups, alone].map((each) => each.listen(() => {})))
  const pass = (more: number): void => {
    ms += more
  }
  // If a ticket moved, its group would remember it until a round of the group has not ended in time, on the clock of the machine.
  await sameFateInGroups({ pairs, pass, moves: false, histories: 300 })
  for (const { groups, alone } of pairs) await Promise.all([groups.close(), alone.close()])
})
