import { expect, test } from 'vitest'
import type { Ticket } from '../../../src/contract/store.ts'
import { Renewals } from '../../../src/stores/redis/server/renewals.ts'
import type { Partition, Topology } from '../../../src/stores/redis/server/topology.ts'
import { WaitGroups } from '../../../src/stores/wait-groups.ts'
import { until } from '../../servers/until.ts'
import { ticket } from '../tickets.ts'

test('waiters stay a group while the server has not answered a question about it', async () => {
  const groups = new WaitGroups('inbox', 2)
  const waiters = [ticket({ key: 'key', patienceMs: 3000 }), ticket({ key: 'key', patienceMs: 3000 })]
  const group = groups.newGroup(waiters[0] as Ticket)
  for (const waiter of waiters) groups.join(waiter, group)
  expect(groups.plan(waiters)?.groups).toEqual(new Map([[group, [0, 1]]]))
  group.open += 1
  const since = performance.now()
  await until('their patience is over', () => performance.now() - since > 3000)
  // A question about each waiter costs the server much more, and it is behind already.
  expect(groups.plan(waiters.slice(0, 1))).toMatchObject({
    groups: new Map([[group, [0]]]),
    crowds: new Map(),
  })
  group.open -= 1
  expect(groups.plan(waiters)?.crowds).toEqual(new Map([['key', [0, 1]]]))
})

test('a group that was made in part only is made anew: nobody knows who is in it', async () => {
  const { renewals, groups, asked, fates } = scriptedRenewals()
  const waiters = Array.from({ length: 120 }, () => ticket({ key: 'key' }))
  for (const waiter of waiters) groups.waits(waiter)
  fates.push('answer', 'fail', 'answer')
  await expect(renewals.renew(waiters)).rejects.toThrow('the reply was lost')
  expect(asked.splice(0)).toEqual(['+inbox/1', '=inbox/1', '=inbox/1'])
  await renewals.renew(waiters)
  expect(asked.splice(0)).toEqual(['+inbox/2', '=inbox/2', '=inbox/2'])
  await renewals.renew(waiters)
  expect(asked.splice(0)).toEqual(['*inbox/2'])
})

test('groups on the same terms are asked about together, and a failure costs those of one request', async () => {
  const { renewals, groups, asked, fates } = scriptedRenewals()
  const crowds = ['a', 'b', 'c'].map((key) =>
    Array.from({ length: 3 }, () => ticket({ key, patienceMs: key === 'c' ? 9000 : 60_000 })),
  )
  for (const waiter of crowds.flat()) groups.waits(waiter)
  await renewals.renew(crowds.flat())
  asked.length = 0
  fates.push('fail', 'answer')
  const ends = await Promise.allSettled(crowds.map((crowd) => renewals.renew(crowd)))
  expect(asked.splice(0)).toEqual(['*inbox/1 inbox/2', '*inbox/3'])
  expect(ends.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'fulfilled'])
  await renewals.renew(crowds.flat())
  expect(asked.splice(0)).toEqual(['*inbox/1 inbox/2', '*inbox/3'])
})

/** Renewals whose server says to all that they wait, or whose reply is lost. */
function scriptedRenewals() {
  const groups = new WaitGroups('inbox', 2)
  const fates: ('answer' | 'fail')[] = []
  const asked: string[] = []
  const partition: Pick<Partition, 'run'> = {
    run: async (_, [group = '', ...ids]) => {
      asked.push(group === '*' ? `*${ids.join(' ')}` : group)
      if (fates.shift() === 'fail') throw new Error('the reply was lost')
      return ids.map(() => 'q2000 1')
    },
  }
  const topology = {
    divide: <Asked>(all: readonly Asked[]) => [[partition, all]],
    failure: (error: unknown) => error,
    scripts: {},
  }
  const host = {
    topology: topology as unknown as Topology,
    groups,
    argsFor: (_: Partition, __: readonly unknown[], group = '') => [group],
    linesOf: (reply: unknown) => reply as readonly string[],
  }
  return { renewals: new Renewals(host), groups, asked, fates }
}
