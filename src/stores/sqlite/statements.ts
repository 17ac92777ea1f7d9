import { scripts } from './sql/scripts.generated.ts'
import type { Database, SqlValue } from './sqlite-engine.ts'

/** A prepared statement, with the types of its parameters and of its rows. */
export interface Query<In extends readonly SqlValue[], Row = never> {
  run(...values: In): unknown
  get(...values: In): Row | undefined
  all(...values: In): Row[]
}

/** A statement whose caller has to know whether it changed a row. */
export type Change<In extends readonly SqlValue[]> = (...values: In) => boolean

/** Every statement of the store, prepared once for each connection. */
export interface SqliteStatements {
  readonly begin: Query<[]>
  readonly beginReading: Query<[]>
  readonly commit: Query<[]>
  readonly savepoint: Query<[]>
  readonly rollBackToSavepoint: Query<[]>
  readonly releaseSavepoint: Query<[]>
  readonly look: Query<[key: string, id: string, now: number], LookRow>
  readonly crowd: Query<[key: string, id: string, now: number], CrowdRow>
  readonly holders: Query<[key: string, besidesId: string], HolderRow>
  readonly overdue: Query<[key: string, besidesId: string, now: number], HolderRow>
  readonly queue: Query<[key: string, count: number], WaiterRow>
  readonly waiter: Query<[key: string, id: string], WaiterRow>
  /** A waiter without a group costs no look at the groups. A join of the two tables made a hand-over a sixth slower. */
  readonly group: Query<[key: string, name: string], readonly [heardAt: number, rememberedUntil: number]>
  readonly remembered: Query<[key: string, now: number], readonly [number]>
  readonly ahead: Query<[key: string, id: string], readonly [number]>
  readonly setClock: Query<[ms: number, us: number]>
  readonly addHolder: Query<
    [
      key: string,
      id: string,
      units: number,
      limit: number,
      lockDelayMs: number,
      owner: string,
      inbox: string,
      fence: number,
      since: number,
      state: HolderState,
      expiresAt: number,
      holdUntil: number,
    ]
  >
  /** Takes a free key. False if it is not free, if the ticket has a tombstone, or if the fence clock has another moment. */
  readonly takeFree: Change<
    [
      key: string,
      id: string,
      units: number,
      limit: number,
      lockDelayMs: number,
      owner: string,
      inbox: string,
      fence: number,
      now: number,
      expiresAt: number,
      holdUntil: number,
      clockMs: number,
      clockUs: number,
    ]
  >
  /** Drops the holder of a mutex that nobody waits for. False if anything else has to be done. */
  readonly leaveFree: Change<[key: string, id: string, now: number, leastLaterFence: number]>
  readonly keepHolder: Query<
    [state: HolderState, expiresAt: number, holdUntil: number, inbox: string, key: string, id: string]
  >
  readonly offeredTo: Query<[key: string, id: string], readonly [inbox: string]>
  readonly dropHolder: Query<[key: string, id: string]>
  readonly addWaiter: Query<
    [
      key: string,
      id: string,
      units: number,
      limit: number,
      ttlMs: number,
      acceptMs: number,
      minHoldMs: number,
      lockDelayMs: number,
      owner: string,
      inbox: string,
      since: number,
      heardAt: number,
      rememberedUntil: number,
    ]
  >
  readonly keepWaiter: Query<
    [heardAt: number, rememberedUntil: number, inbox: string, key: string, place: number]
  >
  readonly dropWaiter: Query<[key: string, place: number]>
  readonly dropWaitersOf: Query<[key: string, inbox: string]>
  /** `inbox`: null if it stays. No row if there is no such waiter, or if it is in the group. */
  readonly joinGroup: Query<[name: string, inbox: string | null, key: string, id: string], readonly [number]>
  readonly addGroup: Query<
    [key: string, name: string, size: number, inbox: string, heardAt: number, rememberedUntil: number]
  >
  /** No row if a waiter has left the group, if it was made under another inbox, or if it is not in the file. */
  readonly hearGroup: Query<
    [heardAt: number, rememberedUntil: number, key: string, name: string, inbox: string],
    readonly [number]
  >
  /** A row if no waiter has left the group. */
  readonly wholeGroup: Query<[key: string, name: string], readonly [number]>
  readonly bury: Query<[key: string, id: string, until: number, evicted: number, reason: string]>
  readonly shut: Query<[key: string, until: number]>
  readonly open: Query<[key: string]>
  readonly rooms: Query<[prefix: string, after: string, count: number], readonly [string]>
  readonly holdersAfter: Query<[key: string, id: string, count: number], readonly [string, string, number]>
  /** With the time until which the waiter or its group is remembered, whichever is later. */
  readonly waitersAfter: Query<
    [key: string, place: number, count: number],
    readonly [key: string, place: number, rememberedUntil: number]
  >
  readonly closedBefore: Query<[now: number, count: number], readonly [string]>
  readonly buriedBefore: Query<[now: number, count: number], readonly [key: string, id: string]>
  readonly unbury: Query<[key: string, id: string]>
}

export type HolderState = 'held' | 'offered' | 'leaving'

/** A row of sql/look.sql. */
export type LookRow = readonly [
  /** Null when the ticket does not hold; so are the seven that follow. */
  units: number | null,
  limit: number,
  lockDelayMs: number,
  fence: number,
  state: HolderState,
  expiresAt: number,
  holdUntil: number,
  inbox: string,
  clockMs: number,
  clockUs: number,
  closedUntil: number,
  waiting: number,
  /** The limit of any other holder; null if there is none. */
  otherLimit: number | null,
  otherExpiresAt: number,
  otherFence: number,
  /** Of all holders that are no mutex, with the ticket's own and the overdue ones. */
  crowdUnits: number,
  crowdFence: number,
  evicted: number | null,
  reason: string,
]

/** A row of sql/crowd.sql. */
export type CrowdRow = readonly [
  overdueUnits: number,
  limit: number,
  /** Null when all holders are overdue; so is the limit. */
  expiresAt: number | null,
]

export type HolderRow = readonly [
  id: string,
  units: number,
  limit: number,
  lockDelayMs: number,
  fence: number,
  state: HolderState,
  expiresAt: number,
  holdUntil: number,
  inbox: string,
  owner: string,
  since: number,
]

export type WaiterRow = readonly [
  id: string,
  place: number,
  units: number,
  limit: number,
  ttlMs: number,
  acceptMs: number,
  minHoldMs: number,
  lockDelayMs: number,
  owner: string,
  inbox: string,
  since: number,
  heardAt: number,
  rememberedUntil: number,
  groupName: string,
]

const HOLDER = 'id, units, "limit", lock_delay_ms, fence, state, expires_at, hold_until, inbox, owner, since'
const WAITER =
  'id, place, units, "limit", ttl_ms, accept_ms, min_hold_ms, lock_delay_ms, owner, inbox, since, heard_at, remembered_until, group_name'

/** Longer statements are in sql/. One-liners are here, below the types of their parameters and rows. */
export function prepareStatements(database: Database): SqliteStatements {
  function query<In extends readonly SqlValue[], Row>(sql: string): Query<In, Row> {
    const statement = database.prepare(sql)
    statement.setReturnArrays(true)
    // get() instead of run(), which returns an object that counts the changes: that would cost a tenth of a cycle.
    Object.defineProperty(statement, 'run', { value: statement.get })
    return statement as unknown as Query<In, Row>
  }
  // The object that run() returns takes a third as long as RETURNING, which makes a table in memory for each call.
  function change<In extends readonly SqlValue[]>(sql: string): Change<In> {
    const statement = database.prepare(sql)
    return (...values) => (statement.run(...values) as { readonly changes: number | bigint }).changes > 0
  }
  return {
    begin: query('BEGIN IMMEDIATE'),
    beginReading: query('BEGIN'),
    commit: query('COMMIT'),
    savepoint: query('SAVEPOINT room'),
    rollBackToSavepoint: query('ROLLBACK TO room'),
    releaseSavepoint: query('RELEASE room'),
    look: query(scripts.look),
    crowd: query(scripts.crowd),
    // By fence, which is the order of admission.
    holders: query(`SELECT ${HOLDER} FROM holder WHERE key = ? AND id <> ? ORDER BY fence`),
    overdue: query(
      `SELECT ${HOLDER} FROM holder INDEXED BY crowd_by_end WHERE key = ? AND "limit" > 1 AND id <> ? AND expires_at <= ?`,
    ),
    queue: query(`SELECT ${WAITER} FROM waiter WHERE key = ? ORDER BY place LIMIT ?`),
    waiter: query(`SELECT ${WAITER} FROM waiter WHERE key = ? AND id = ?`),
    group: query('SELECT heard_at, remembered_until FROM wait_group WHERE key = ? AND name = ?'),
    remembered: query(
      'SELECT 1 FROM waiter WHERE key = ?1 AND remembered_until > ?2 UNION ALL SELECT 1 FROM wait_group WHERE key = ?1 AND remembered_until > ?2 LIMIT 1',
    ),
    ahead: query(scripts.ahead),
    setClock: query('UPDATE meta SET clock_ms = ?, clock_us = ?'),
    addHolder: query('INSERT INTO holder VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)'),
    takeFree: change(scripts.takeFree),
    leaveFree: change(scripts.leaveFree),
    keepHolder: query(
      'UPDATE holder SET state = ?, expires_at = ?, hold_until = ?, inbox = ? WHERE key = ? AND id = ?',
    ),
    offeredTo: query("SELECT inbox FROM holder WHERE key = ? AND id = ? AND state = 'offered'"),
    dropHolder: query('DELETE FROM holder WHERE key = ? AND id = ?'),
    addWaiter: query(
      "INSERT INTO waiter SELECT ?1, ifnull(max(place), 0) + 1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, '' FROM waiter WHERE key = ?1",
    ),
    keepWaiter: query(
      'UPDATE waiter SET heard_at = ?, remembered_until = ?, inbox = ? WHERE key = ? AND place = ?',
    ),
    dropWaiter: query('DELETE FROM waiter WHERE key = ? AND place = ?'),
    dropWaitersOf: query('DELETE FROM waiter WHERE key = ? AND inbox = ?'),
    joinGroup: query(
      'UPDATE waiter SET group_name = ?1, inbox = ifnull(?2, inbox) WHERE key = ?3 AND id = ?4 AND group_name <> ?1 RETURNING 1',
    ),
    addGroup: query('INSERT INTO wait_group VALUES (?, ?, ?, 0, ?, ?, ?)'),
    hearGroup: query(
      'UPDATE wait_group SET heard_at = ?, remembered_until = ? WHERE key = ? AND name = ? AND inbox = ? AND changed = 0 RETURNING 1',
    ),
    wholeGroup: query('SELECT 1 FROM wait_group WHERE key = ? AND name = ? AND changed = 0'),
    bury: query('INSERT OR REPLACE INTO tombstone VALUES (?, ?, ?, ?, ?)'),
    shut: query('INSERT OR REPLACE INTO closure VALUES (?, ?)'),
    open: query('DELETE FROM closure WHERE key = ?'),
    rooms: query(scripts.rooms),
    holdersAfter: query(
      'SELECT key, id, expires_at FROM holder WHERE (key, id) > (?, ?) ORDER BY key, id LIMIT ?',
    ),
    waitersAfter: query(
      `SELECT waiter.key, place, max(waiter.remembered_until, ifnull(wait_group.remembered_until, 0))
      FROM waiter LEFT JOIN wait_group ON wait_group.key = waiter.key AND name = group_name
      WHERE (waiter.key, place) > (?, ?) ORDER BY waiter.key, place LIMIT ?`,
    ),
    closedBefore: query('SELECT key FROM closure WHERE until <= ? LIMIT ?'),
    // In two steps: one DELETE with a subquery takes ten times as long when there is nothing to delete.
    buriedBefore: query('SELECT key, id FROM tombstone WHERE until <= ? LIMIT ?'),
    unbury: query('DELETE FROM tombstone WHERE key = ? AND id = ?'),
  }
}
