import { afterAll, describe, expect, test } from 'vitest'
import { startPostgres } from '../../servers/postgres-server.ts'
import type { Edit } from '../../simulation/mutants.ts'
import { withEdits } from '../../simulation/mutation.ts'
import { groupCases } from './group-cases.ts'
import { groupStage } from './group-stage.ts'

const SQL = 'stores/postgres/sql/scripts.generated.ts'
const RENEWALS = 'stores/postgres/renewals.ts'
const GROUPS = 'stores/wait-groups.ts'

const server = await startPostgres({ settings: { synchronous_commit: 'off' } })
afterAll(() => server.close())

type Mistake = readonly [
  mistake: string,
  notices: string,
  ...edits: (readonly [file: string, find: string, replace: string])[],
]

/** Mistakes that a programmer could make with groups, and a part of the name of a case that has to notice. */
const mistakes: readonly Mistake[] = [
  [
    'the time of a group is not read',
    'lapsed offer',
    [SQL, 'coalesce(known.heard_at, head.heard_at)', 'head.heard_at'],
  ],
  [
    'people do not see that a group is remembered',
    'people see',
    [SQL, 'coalesce(known.remembered_until, waiter.remembered_until)', 'waiter.remembered_until'],
  ],
  [
    'a group does not keep its waiters remembered',
    'come back late',
    [SQL, 'v_waiter.remembered_until := v_group.remembered_until;', ''],
  ],
  [
    'the time of a group counts only if it is later',
    'set back',
    [
      SQL,
      'v_waiter.remembered_until := v_group.remembered_until;',
      'v_waiter.remembered_until := greatest(v_waiter.remembered_until, v_group.remembered_until);',
    ],
  ],
  [
    'a group does not tell that its process hears messages',
    'hears messages',
    [SQL, 'v_waiter.listens := v_group.listens;', ''],
  ],
  [
    'a message to a group is a lease although the group has been silent',
    'silent for its acceptance term',
    [SQL, 'v_waiter.heard_at := v_group.heard_at;', 'v_waiter.heard_at := v_now;'],
  ],
  [
    'a group is not asked whether its process hears messages',
    'hears messages',
    [
      SQL,
      'remembered_until = v_now + asked.patience_ms, listens = v_listens',
      'remembered_until = v_now + asked.patience_ms',
    ],
  ],
  [
    'the times of another group are read',
    'lapsed offer',
    [
      SQL,
      'known.key = p_key and known.name = head.group_name',
      "known.key = p_key and head.group_name <> '' and known.changed",
    ],
  ],
  [
    'a group does not notice who is admitted',
    'is admitted ends',
    [SQL, "if v_waiter.group_name <> '' then v_left := v_left || v_waiter.group_name; end if;", ''],
  ],
  [
    'a group does not notice who is silent behind a lapsed offer',
    'silent their places',
    [
      SQL,
      "select count(*), coalesce(array_agg(group_name), '{}') into v_dropped, v_left from gone;",
      'select count(*) into v_dropped from gone;',
    ],
  ],
  [
    'a group does not notice who gives up',
    'gives up ends',
    [SQL, 'if v_left <> \'\' then perform "{schema}".lock_leave_groups(v_key, array[v_left]); end if;', ''],
  ],
  [
    'a group does not notice who is evicted',
    'is evicted ends',
    [SQL, 'v_left := v_left || v_ticket.group_name;', ''],
  ],
  [
    'a group does not notice who is swept',
    'the sweep',
    [SQL, 'perform "{schema}".lock_leave_groups(v_key, v_left);\n    else', 'else'],
  ],
  [
    'a group does not notice who asks alone',
    'asks alone ends',
    [SQL, 'if v_left <> \'\' then perform "{schema}".lock_leave_groups(p_key, array[v_left]); end if;', ''],
  ],
  [
    'a waiter that asks alone stays in its group',
    'remembered for itself',
    [SQL, "inbox = p_inbox, listens = p_listens, group_name = ''", 'inbox = p_inbox, listens = p_listens'],
  ],
  [
    'the sweep takes a living group for dead',
    'the sweep',
    [
      SQL,
      'select place from "{schema}".lock_queue(v_key) where remembered_until <= v_now',
      'select place from "{schema}".lock_waiters where key = v_key and remembered_until <= v_now',
    ],
    [
      SQL,
      'and known.name = waiter.group_name and known.remembered_until > v_now',
      'and known.name = waiter.group_name and false',
    ],
  ],
  [
    'a group does not count who leaves',
    'gives up ends',
    [SQL, 'set size = size - 1, changed = true', 'set changed = true'],
  ],
  [
    'a group counts one for all who leave at once',
    'several groups',
    [
      SQL,
      'set size = known.size - departed.count, changed = true',
      'set size = known.size - 1, changed = true',
    ],
    [SQL, 'known.size <= departed.count', 'known.size <= 1'],
  ],
  [
    'a group of which one has left is answered for',
    'gives up ends',
    [SQL, 'name = p_names[v_index] and not changed', 'name = p_names[v_index]'],
  ],
  [
    'a group of which one has left is heard of',
    'release was lost',
    [SQL, 'and known.name = asked.name and not known.changed', 'and known.name = asked.name'],
    [
      GROUPS,
      '(open > 0 || now - roundEndedAt < patienceMs)',
      '(open > 0 || now - roundEndedAt >= 0 * patienceMs)',
    ],
  ],
  [
    'late waiters are dropped before their group is heard of',
    'come back late',
    [
      SQL,
      'v_listens := p_listens and not "{schema}".lock_is_unreached(p_inbox);\n  -- All groups',
      'perform "{schema}".lock_settle(p_keys[1], v_us, null, p_inbox, \'\');\n  -- All groups',
    ],
  ],
  [
    'waiters that join keep the address of another process',
    'hears messages',
    [SQL, 'set group_name = p_name, inbox = p_inbox', "set group_name = p_name, inbox = 'nobody'"],
  ],
  [
    'a call that is made again makes the group again',
    'made again',
    [SQL, 'where waiter.group_name <> p_name', ''],
  ],
  [
    'all of a group ask as the head does',
    '(head at 4)',
    [RENEWALS, 'tickets[place]?.id === headId ? ofHead : ofAll', 'ofHead'],
  ],
  [
    'the head of a group asks as all do',
    '(head at 0)',
    [RENEWALS, 'tickets[place]?.id === headId ? ofHead : ofAll', 'ofAll'],
  ],
  [
    'a waiter that gave up is kept for ever',
    'release was lost',
    [
      GROUPS,
      '(open > 0 || now - roundEndedAt < patienceMs)',
      '(open > 0 || now - roundEndedAt >= 0 * patienceMs)',
    ],
  ],
]

describe('a case notices that', () => {
  test.for(mistakes)('%s', { timeout: 120_000 }, async ([, notices, ...edits]) => {
    const planted = edits.map(([file, find, replace]) => ({ file, find, replace }))
    expect(await failing(planted, notices)).not.toEqual([])
  })
})

test('the cases find nothing wrong with a copy of the store', async () => {
  expect(await failing([])).toEqual([])
}, 120_000)

/** Runs the cases whose names hold a text. Resolves with the names of those that fail. */
async function failing(edits: readonly Edit[], named = ''): Promise<readonly string[]> {
  const modules = ['stores/postgres/postgres-store', 'stores/postgres/tables', 'postgres/connections']
  return withEdits({ modules, edits }, async (copy) => {
    const [store, tables, connections] = await Promise.all(
      modules.map((path) => import(`${copy}/${path}.js`)),
    )
    await using stage = await groupStage(server.url, {
      PostgresStore: store.PostgresStore,
      migrateTables: tables.migrateTables,
      connectionsOf: connections.connectionsOf,
    })
    const failed: string[] = []
    for (const { name, run } of groupCases(stage)) {
      if (name.includes(named)) await run().catch(() => failed.push(name))
    }
    return failed
  })
}
