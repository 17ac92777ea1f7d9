import { expected, parseFunction } from '../base/arguments.ts'
import { ConflictError } from '../errors.ts'
import { isConflict, parseRetryOptions, RETRY_OPTIONS, type RetryOptions, retry } from './retry.ts'

/** How to read, change and write one value. */
export interface OptimisticUpdate<Current, Next> extends RetryOptions {
  /** Reads what is there, with its version; called again for every attempt. */
  read(): Current | Promise<Current>
  /** Computes the new value. `null` or `undefined`: write nothing. Called for every attempt, so it must have no effect. */
  change(current: Current): Next | null | undefined | Promise<Next | null | undefined>
  /**
   * Writes it if the version is still that of `current`, and says whether it was: true when it was written, false when
   * somebody else came first.
   */
  write(next: NonNullable<Next>, current: Current): boolean | Promise<boolean>
}

/**
 * Reads, changes and writes without a lock: if somebody else wrote in between, it starts over from the read. A conflict is
 * a `write` that answers false, a serialization failure (40001) or a deadlock (40P01) in any of the three, or a `HoldfastError` with the
 * code `conflict`.
 *
 * ```ts
 * import { updateOptimistically } from 'holdfast/optimistic'
 * import { Kysely, PostgresDialect } from 'kysely'
 * import { Pool } from 'pg'
 *
 * interface Account { id: number, balance: number, version: number }
 * const db = new Kysely<{ account: Account }>({ dialect: new PostgresDialect({ pool: new Pool() }) })
 *
 * await updateOptimistically({
 *   read: () => db.selectFrom('account').selectAll().where('id', '=', 42).executeTakeFirstOrThrow(),
 *   change: (account) => (account.balance < 10 ? null : { balance: account.balance - 10 }),
 *   write: async (next, account) => {
 *     const { numUpdatedRows } = await db
 *       .updateTable('account')
 *       .set({ ...next, version: account.version + 1 })
 *       .where('id', '=', account.id)
 *       .where('version', '=', account.version)
 *       .executeTakeFirst()
 *     return numUpdatedRows === 1n
 *   },
 * })
 * ```
 *
 * @returns what was written, or null when `change` left it alone.
 * @throws {@link ConflictError} when every attempt came too late; the message says how many there were.
 */
export async function updateOptimistically<Current, Next>(
  update: OptimisticUpdate<Current, Next>,
): Promise<NonNullable<Next> | null> {
  const settings = parseRetryOptions(update, ['read', 'change', 'write', ...RETRY_OPTIONS])
  for (const name of ['read', 'change', 'write'] as const) parseFunction(name, update[name])
  const attempt = async () => {
    const current = await update.read()
    const next = await update.change(current)
    if (next === null || next === undefined) return null
    const written = await update.write(next, current)
    if (typeof written !== 'boolean') {
      // A forgotten `return` would otherwise be a success, or a conflict for ever.
      throw expected(
        'write',
        'a function that answers true (written) or false (somebody came first)',
        written,
      )
    }
    if (!written) throw new ConflictError('Somebody else wrote between the read and the write.')
    return next
  }
  return await retry(attempt, settings, isConflict)
}
