import { expected } from '../base/arguments.ts'
import { messageOf } from '../base/thrown.ts'
import { InvalidArgumentError, StoreError } from '../errors.ts'
import type { PostgresConnections } from '../postgres/connections.ts'
import {
  columnOf,
  executorOf,
  inTransaction,
  type SqlClient,
  type SqlExecutor,
  sqlStateOf,
} from '../postgres/executor.ts'
import { retried, storeErrorOf } from '../postgres/failures.ts'
import { inSchema, migrate } from '../postgres/migrations.ts'
import { partsOf } from './enqueue-parts.ts'
import type { JobBacklog, JobState } from './job.ts'
import type { NamedLimit, ParsedLimit, RawLimit } from './name-limits.ts'
import type { JobEntry } from './new-job.ts'
import {
  type AttemptId,
  CLAIM,
  type ClaimRequest,
  type ClaimResult,
  claimOf,
  claimParameters,
  ENQUEUE_ONE,
  ENQUEUE_UNIQUE,
  enqueueParameters,
  entriesText,
  type JobLease,
  keyParameters,
  MIGRATIONS,
  type NotRenewed,
  type RawClaim,
  SETTLE,
  type Settled,
  type Settlement,
  settleParameters,
  textArray,
} from './statements.ts'

/** The channel of wakes, for all schemas of a database. A message names a job that is ready, or a worker whose job was cancelled. */
export const CHANNEL = 'holdfast_jobs'

interface About {
  readonly doing: string
  readonly transaction?: SqlClient | undefined
}

/** The jobs to change, if they are in one of the states. */
export interface Chosen {
  readonly ids: readonly string[]
  readonly states: readonly JobState[]
}

export interface Repaired {
  readonly changed: readonly string[]
  /** Another transaction has locked them: ask again. */
  readonly busy: readonly string[]
}

/**
 * Calls the functions of the jobs. Every call is one statement, and rejects with {@link StoreError}s.
 */
export class JobTables {
  readonly #connections: PostgresConnections
  readonly #schema: string
  readonly #texts = new Map<string, string>()
  /** The text of the statement that makes a call, by the call. */
  readonly #selects = new Map<string, string>()

  constructor(connections: PostgresConnections, schema: string) {
    this.#connections = connections
    this.#schema = schema
  }

  async migrate(): Promise<void> {
    await migrate(this.#connections, { schema: this.#schema, component: 'jobs', migrations: MIGRATIONS })
  }

  async enqueue(
    entries: readonly JobEntry[],
    transaction: SqlClient | undefined,
  ): Promise<readonly (string | null)[]> {
    const about = { doing: 'enqueuing jobs', transaction }
    const [only] = entries
    if (entries.length === 1 && only?.children === undefined && only !== undefined)
      return [await this.#enqueueOne(only, about)]
    const parts = partsOf(entries)
    if (parts.length <= 1) return this.#enqueueSome(entries, about)
    if (transaction !== undefined) return this.#enqueueParts(parts, about)
    return this.#sent(about.doing, () =>
      this.#connections.transaction((own) => this.#enqueueParts(parts, { ...about, transaction: own })),
    )
  }

  #enqueueOne(entry: JobEntry, about: About): Promise<string | null> {
    const parameters = enqueueParameters(entry)
    if (entry.keyRules === undefined) return this.call(ENQUEUE_ONE, parameters, about)
    return this.call(ENQUEUE_UNIQUE, [...parameters, ...keyParameters(entry.keyRules)], about)
  }

  #enqueueSome(entries: readonly JobEntry[], about: About): Promise<readonly (string | null)[]> {
    return this.call('jobs_enqueue($1::text::json)', [entriesText(entries)], about)
  }

  async #enqueueParts(
    parts: readonly (readonly JobEntry[])[],
    about: About,
  ): Promise<readonly (string | null)[]> {
    const ids: (string | null)[] = []
    for (const part of parts) {
      for (const id of await this.#enqueueSome(part, about)) ids.push(id)
    }
    return ids
  }

  async claim(request: ClaimRequest): Promise<ClaimResult> {
    const answer = await this.call<RawClaim>(CLAIM, claimParameters(request), { doing: 'claiming jobs' })
    return claimOf(answer)
  }

  async settle(
    settlement: Settlement,
    { keepsCompleted, transaction }: { keepsCompleted: boolean; transaction?: SqlClient | undefined },
  ): Promise<Settled> {
    // In the caller's transaction it may wait: only the caller waits with it.
    const parameters = settleParameters(settlement, { keepsCompleted, isPatient: transaction !== undefined })
    return this.call(SETTLE, parameters, { doing: 'settling jobs', transaction })
  }

  /** Both in one statement, so with one wait for the disk. */
  async settleAndClaim(
    settlement: Settlement,
    { keepsCompleted, request }: { keepsCompleted: boolean; request: ClaimRequest },
  ): Promise<{ readonly settled: Settled; readonly claim: ClaimResult }> {
    const settling = settleParameters(settlement, { keepsCompleted, isPatient: false })
    const claim = CLAIM.replace(/\$(\d)/g, (_, number) => `$${Number(number) + settling.length}`)
    // In this order, so that the claim sees the groups that the settlement has unblocked.
    const [row] = await this.#query(
      `select "{schema}".${SETTLE}::text as settled, "{schema}".${claim}::text as claimed`,
      [...settling, ...claimParameters(request)],
      'settling and claiming jobs',
    )
    return {
      settled: JSON.parse(String(row?.['settled'])) as Settled,
      claim: claimOf(JSON.parse(String(row?.['claimed'])) as RawClaim),
    }
  }

  async renew(leases: readonly JobLease[], ttlMs: number): Promise<NotRenewed> {
    const parameters = [JSON.stringify(leases), String(ttlMs)]
    return this.call('jobs_renew($1::text::json, $2::text::bigint)', parameters, {
      doing: 'renewing the leases of jobs',
    })
  }

  /** `gone`: the attempts that are not the ones that run. `skipped`: those that another transaction has locked: ask again. */
  async report(
    entries: readonly (AttemptId & { readonly progress: string })[],
  ): Promise<{ readonly gone: readonly AttemptId[]; readonly skipped: readonly AttemptId[] }> {
    return this.call('jobs_report($1::text::json)', [JSON.stringify(entries)], {
      doing: 'storing the progress of jobs',
    })
  }

  /** From now on the changes of these jobs are notified. Resolves with those that another transaction has locked: ask again. */
  async watch(ids: readonly string[]): Promise<readonly string[]> {
    return this.call('jobs_watch($1::text::bigint[])', [idArray(ids)], { doing: 'waiting for jobs' })
  }

  cancel({ ids, states }: Chosen, reason: string): Promise<Repaired> {
    const parameters = [idArray(ids), textArray(states), reason]
    return this.call('jobs_cancel($1::text::bigint[], $2::text::text[], $3::text)', parameters, {
      doing: 'cancelling jobs',
    })
  }

  retry({ ids, states }: Chosen): Promise<Repaired> {
    const parameters = [idArray(ids), textArray(states)]
    return this.call('jobs_retry($1::text::bigint[], $2::text::text[])', parameters, {
      doing: 'retrying jobs',
    })
  }

  remove({ ids, states }: Chosen): Promise<Repaired> {
    const parameters = [idArray(ids), textArray(states)]
    return this.call('jobs_remove($1::text::bigint[], $2::text::text[])', parameters, {
      doing: 'removing jobs',
    })
  }

  /** Whether jobs of these names are left to run. */
  async areLeft(
    names: readonly string[],
    { skipDelays }: { readonly skipDelays: boolean },
  ): Promise<boolean> {
    const parameters = [textArray(names), String(skipDelays)]
    return this.call('to_json(jobs_left($1::text::text[], $2::text::boolean))', parameters, {
      doing: 'looking for jobs that are left',
    })
  }

  async limit(name: string, { concurrency, rate }: ParsedLimit): Promise<void> {
    const parameters = [name, numberText(concurrency), numberText(rate?.points), numberText(rate?.windowMs)]
    await this.#query(
      'select "{schema}".jobs_limit($1::text, $2::text::integer, $3::text::integer, $4::text::bigint)',
      parameters,
      'limiting jobs',
    )
  }

  async pause(name: string, { isPaused }: { readonly isPaused: boolean }): Promise<void> {
    const call = 'select "{schema}".jobs_pause($1::text, $2::text::boolean)'
    await this.#query(call, [name, String(isPaused)], isPaused ? 'pausing jobs' : 'resuming jobs')
  }

  /** What of a paused name is still to end. `claims`: those of an earlier answer, or null. */
  stillBusy(
    name: string,
    claims: readonly string[] | null,
  ): Promise<{ readonly claims: readonly string[]; readonly running: number }> {
    const parameters = [name, claims === null ? null : textArray(claims)]
    return this.call('jobs_still_busy($1::text, $2::text::text[])', parameters, { doing: 'waiting for jobs' })
  }

  async limits(): Promise<readonly NamedLimit[]> {
    const rows = await this.call<readonly RawLimit[]>('jobs_limits()', [], { doing: 'reading limits' })
    return rows.map(({ name, isPaused, concurrency, points, windowMs }) => ({
      name,
      isPaused,
      concurrency,
      rate: points === null || windowMs === null ? null : { points, windowMs },
    }))
  }

  /** Of each name and state, by an index. */
  backlog(most: number): Promise<readonly JobBacklog[]> {
    return this.call('jobs_backlog($1::text::integer)', [String(most)], { doing: 'counting jobs' })
  }

  async tidy(completedMs: number, endedMs: number): Promise<boolean> {
    return this.call(
      'to_json(jobs_tidy($1::text::bigint, $2::text::bigint))',
      [limitText(completedMs), limitText(endedMs)],
      {
        doing: 'cleaning up jobs',
      },
    )
  }

  /**
   * Unblocks jobs of the groups that come after one, or of the first groups if it is null. Looks at a part of them. Resolves with the
   * last group of this part, or null if there are no more.
   */
  async unblockStuck(after: string | null): Promise<string | null> {
    return this.call('to_json(jobs_unblock_stuck($1::text))', [after], { doing: 'cleaning up jobs' })
  }

  #query(text: string, parameters: readonly (string | null)[], doing: string) {
    return this.#ask(this.#inSchema(text), parameters, doing)
  }

  #ask(text: string, parameters: readonly (string | null)[], doing: string) {
    return this.#sent(doing, () => this.#connections.query(text, parameters))
  }

  async #sent<Answer>(doing: string, send: () => Promise<Answer>): Promise<Answer> {
    try {
      return await retried(send)
    } catch (error) {
      throw this.#failure(error, doing)
    }
  }

  /** Calls a function of the schema whose name begins with `jobs_`, and reads its answer as JSON. */
  async call<Answer>(
    call: string,
    parameters: readonly (string | null)[],
    { doing, transaction }: About,
  ): Promise<Answer> {
    if (transaction === undefined) {
      const [row] = await this.#ask(this.#selectOf(call), parameters, doing)
      return JSON.parse(String(row?.['answer'] ?? null)) as Answer
    }
    const executor = executorOf(transaction, 'transaction')
    const known = inTransaction(transaction)
    if (known === false) throw noTransaction(transaction)
    try {
      const rows = known
        ? await executor.query(this.#selectOf(call), parameters)
        : await this.#callIfInTransaction(executor, nameOf(call), parameters)
      return JSON.parse(String(columnOf(rows[0], 'answer'))) as Answer
    } catch (error) {
      throw this.#transactionError(error, transaction, doing)
    }
  }

  /** Outside a transaction, two statements have two transaction numbers. Then the second one fails before it does anything. */
  async #callIfInTransaction(executor: SqlExecutor, call: string, parameters: readonly (string | null)[]) {
    const [row] = await executor.query('select pg_current_xact_id()::text as number')
    const check = `"{schema}".jobs_assert_transaction($${parameters.length + 1}::text)::text as checked`
    const text = this.#inSchema(`select ${check}, ${call}::text as answer`)
    return executor.query(text, [...parameters, String(columnOf(row, 'number'))])
  }

  /** Kept for each call: a text that is made anew has to be hashed anew, before each of the maps on its way finds it. */
  #selectOf(call: string): string {
    let made = this.#selects.get(call)
    if (made === undefined) {
      made = inSchema(`select ${nameOf(call)}::text as answer`, this.#schema)
      this.#selects.set(call, made)
    }
    return made
  }

  #inSchema(text: string): string {
    let made = this.#texts.get(text)
    if (made === undefined) {
      made = inSchema(text, this.#schema)
      this.#texts.set(text, made)
    }
    return made
  }

  #failure(error: unknown, doing: string): Error {
    return refusalOf(error) ?? storeErrorOf(error, { doing, page: 'docs/jobs.md', schema: this.#schema })
  }

  /**
   * Turns errors that only the library can explain into its own. All others, conflicts above all, are the caller's to handle, and
   * pass as they are.
   */
  #transactionError(error: unknown, transaction: SqlClient, doing: string): unknown {
    switch (sqlStateOf(error)) {
      case '22023':
        return refusalOf(error) ?? error
      case 'ZF002':
        return noTransaction(transaction)
      case '25P02':
        return new StoreError(
          'store-refused',
          `The transaction was already aborted by an earlier error of its own: roll it back. Holdfast was ${doing}.`,
          { cause: error },
        )
      case '3F000':
      case '42P01':
      case '42883':
      case '42501':
      case '25006':
        return this.#failure(error, doing)
      default:
        return error
    }
  }
}

function nameOf(call: string): string {
  return call.replace(/\bjobs_/, '"{schema}".jobs_')
}

/** What only the database can check: whether the children of a job are there. */
function refusalOf(error: unknown): InvalidArgumentError | undefined {
  if (error instanceof InvalidArgumentError) return error
  const [words] = /Expected `children` .*\./.exec(messageOf(error)) ?? []
  if (words === undefined || sqlStateOf(error) !== '22023') return undefined
  return new InvalidArgumentError(words, { cause: error })
}

function noTransaction(transaction: unknown): Error {
  return expected(
    'transaction',
    'inside a transaction (after `begin`, and the transaction itself rather than the client or pool it came from)',
    transaction,
  )
}

function idArray(ids: readonly string[]): string {
  return `{${ids.join(',')}}`
}

function numberText(number: number | undefined): string | null {
  return number === undefined ? null : String(number)
}

function limitText(ms: number): string | null {
  return ms === Number.POSITIVE_INFINITY ? null : String(ms)
}
