import { expect, test } from 'vitest'
import type { Ticket } from '../../../src/contract/store.ts'
import { WaitGroups } from '../../../src/stores/redis/server/wait-groups.ts'
import { until } from '../../servers/until.ts'
import { ticket } from '../tickets.ts'

test('waiters stay a group while the server has not answered a question about it', async () => {
  const groups = new WaitGroups('inbox', 2)
  const waiters = [ticket({ key: 'key', patienceMs: 2 }), ticket({ key: 'key', patienceMs: 2 })]
  const group = groups.newGroup(waiters[0] as Ticket)
  for (const waiter of waiters) groups.join(waiter, group)
  expect(groups.plan(waiters)?.groups).toEqual(new Map([[group, [0, 1]]]))
  group.open += 1
  const since = performance.now()
  await until('their patience is over', () => performance.now() - since > 2)
  // A question about each waiter costs the server much more, and it is behind already.
  expect(groups.plan(waiters.slice(0, 1))).toMatchObject({
    groups: new Map([[group, [0]]]),
    crowds: new Map(),
  })
  group.open -= 1
  expect(groups.plan(waiters)?.crowds).toEqual(new Map([['key', [0, 1]]]))
})
