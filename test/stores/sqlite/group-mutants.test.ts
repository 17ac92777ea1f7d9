import { describe, expect, test } from 'vitest'
import type { Edit } from '../../simulation/mutants.ts'
import { withEdits } from '../../simulation/mutation.ts'
import { groupCases } from './group-cases.ts'
import { engines, freshFolder } from './lock-folder.ts'

const folder = freshFolder()
const [engine = '@photostructure/sqlite'] = engines

const STATEMENTS = 'stores/sqlite/statements.ts'
const SCHEMA = 'stores/sqlite/sql/scripts.generated.ts'
const WINDOW = 'stores/sqlite/room-window.ts'
const RENEWALS = 'stores/sqlite/renewals.ts'
const GROUPS = 'stores/wait-groups.ts'

const LEFT =
  "AFTER DELETE ON waiter WHEN old.group_name <> '' BEGIN\n  UPDATE wait_group SET size = size - 1, changed = 1"
const MOVED = LEFT.replace('DELETE ON', 'UPDATE OF group_name ON')

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
    [WINDOW, 'Math.max(row[HEARD_AT], heardAt)', 'row[HEARD_AT]'],
  ],
  [
    'a group does not keep its waiters remembered',
    'people see',
    [WINDOW, 'Math.max(row[REMEMBERED_UNTIL], rememberedUntil)', 'row[REMEMBERED_UNTIL]'],
  ],
  [
    'the times of another group are read',
    'two stores',
    [WINDOW, 'if (this.#group.name !== name) {', "if (this.#group.name === '') {"],
  ],
  ['a group does not count who leaves', 'people see', [SCHEMA, LEFT, LEFT.replace('size = size - 1, ', '')]],
  ['a group does not count who moves', 'each way', [SCHEMA, MOVED, MOVED.replace('size = size - 1, ', '')]],
  ['a group does not notice who leaves', 'each way', [SCHEMA, LEFT, LEFT.replace(', changed = 1', '')]],
  ['a group does not notice who moves', 'gave up', [SCHEMA, MOVED, MOVED.replace(', changed = 1', '')]],
  [
    'a group is answered although a waiter has left',
    'each way',
    [STATEMENTS, 'AND inbox = ? AND changed = 0 RETURNING', 'AND inbox = ? RETURNING'],
    [RENEWALS, 'if (statements.wholeGroup.get(group.key, group.name) === undefined) return false', ''],
  ],
  [
    'a group is answered although the question let a waiter in',
    'each way',
    [RENEWALS, 'if (statements.wholeGroup.get(group.key, group.name) === undefined) return false', ''],
  ],
  [
    'a group keeps the address of a process that has another',
    'where its process listens',
    [
      STATEMENTS,
      'AND name = ? AND inbox = ? AND changed',
      'AND name = ? AND inbox IN (inbox, ?) AND changed',
    ],
  ],
  [
    'waiters that join keep their address',
    'where its process listens',
    [STATEMENTS, 'inbox = ifnull(?2, inbox)', 'inbox = ifnull(inbox, ?2)'],
  ],
  [
    'a waiter that gave up is kept for ever',
    'gave up',
    [
      GROUPS,
      '(open > 0 || now - roundEndedAt < patienceMs)',
      '(open > 0 || now - roundEndedAt >= 0 * patienceMs)',
    ],
  ],
  [
    'a waiter joins a group twice',
    'twice in one list',
    [STATEMENTS, 'AND group_name <> ?1 RETURNING', 'RETURNING'],
  ],
  [
    'all ask as the head does',
    '(head at 9)',
    [RENEWALS, 'if (head === last && first !== last) this.#askAlone(statements, time, first)', ''],
  ],
  [
    'the head asks as all do',
    '(head at 4)',
    [RENEWALS, 'if (head !== undefined) answers[head] = answer.ofHead', ''],
  ],
]

describe('a case notices that', () => {
  test.for(mistakes)('%s', async ([, notices, ...edits]) => {
    expect(await failing(edits.map(([file, find, replace]) => ({ file, find, replace })))).toEqual(
      expect.arrayContaining([expect.stringContaining(notices)]),
    )
  })
})

test('the cases find nothing wrong with a copy of the store', async () => {
  expect(await failing([])).toEqual([])
})

async function failing(edits: readonly Edit[]): Promise<readonly string[]> {
  const modules = ['stores/sqlite/sqlite-store']
  return withEdits({ modules, edits }, async (copy) => {
    const { SqliteStore } = await import(`${copy}/stores/sqlite/sqlite-store.js`)
    const failed: string[] = []
    for (const { name, run } of groupCases({ SqliteStore, engine, folder }))
      await run().catch(() => failed.push(name))
    return failed
  })
}
