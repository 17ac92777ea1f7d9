import { type Backoff, backoffMs } from '../../base/backoff.ts'
import { paused, systemClock } from '../../base/clock.ts'
import { closedStoreError } from '../../base/closed.ts'
import type { Answer } from '../../contract/store.ts'
import { StoreError } from '../../errors.ts'
import type { StoreTime } from '../../law/room.ts'
import { isDamagedRoom } from '../damaged-rooms.ts'
import { isBusy, toStoreError } from './failures.ts'
import { LockFile, type LockFileOptions } from './lock-file.ts'
import type { SqliteStatements } from './statements.ts'

/** The work of one transaction, at one time. It may run again from the start, so it has no other effect. */
export type TransactionWork<A> = (statements: SqliteStatements, time: StoreTime) => A

/**
 * Runs transactions on a lock file. A transaction takes about 10 µs, so it runs at once and answers in the same tick. Only if
 * another process has the write lock, it waits in line and is tried again. So no other process ever blocks the event loop, not
 * even one that was stopped in the middle of a transaction.
 */
export class Transactions {
  readonly #options: LockFileOptions
  readonly #onCheck: (isAnother: boolean) => void
  readonly #line: WaitingTransaction[] = []
  #file: LockFile | undefined
  /** Of the file that was used last. */
  #identity: string | undefined
  #checkAt = 0
  #refusal: { readonly error: StoreError; readonly until: number } | undefined
  #closed = false

  /** `onCheck` runs now and then while the file is used, with whether it is another file than at the last time. */
  constructor(options: LockFileOptions, onCheck: (isAnother: boolean) => void) {
    this.#options = options
    this.#onCheck = onCheck
  }

  /** Throws or rejects with a {@link StoreError}. */
  write<A>(work: TransactionWork<A>): Answer<A> {
    return this.#soon(() => this.#transact('begin', work))
  }

  /** Reads one state of the file, without a lock that others would wait for. */
  read<A>(work: TransactionWork<A>): Answer<A> {
    return this.#soon(() => this.#transact('beginReading', work))
  }

  close(): void {
    this.#closed = true
    this.#forgetFile()
    for (const waiting of this.#line.splice(0)) waiting.reject(closedStoreError('sqliteStore()'))
  }

  /** Runs it at once, or when the file is free. */
  #soon<A>(attempt: () => A): Answer<A> {
    if (this.#closed) throw closedStoreError('sqliteStore()')
    if (this.#line.length === 0) {
      try {
        return attempt()
      } catch (error) {
        if (!isBusy(error)) throw error
      }
    }
    return new Promise<A>((resolve, reject) => {
      const giveUpAt = performance.now() + WAIT_LIMIT_MS
      this.#line.push({ attempt: () => resolve(attempt()), reject, giveUpAt })
      if (this.#line.length === 1) void this.#serve()
    })
  }

  #transact<A>(begin: 'begin' | 'beginReading', work: TransactionWork<A>): A {
    try {
      const file = this.#openFile()
      const { statements } = file
      statements[begin].run()
      try {
        const result = work(statements, this.#options.now())
        statements.commit.run()
        return result
      } catch (error) {
        file.rollBack()
        throw error
      }
    } catch (error) {
      if (isBusy(error)) throw error
      throw this.#refuse(error)
    }
  }

  /** The next call opens the file again, because the trouble may be over by then; but not every call does. */
  #refuse(error: unknown): unknown {
    const refusal = toStoreError(error, this.#options.path)
    if (!(refusal instanceof StoreError) || isDamagedRoom(refusal)) return refusal
    this.#forgetFile()
    const now = performance.now()
    if (now >= (this.#refusal?.until ?? 0)) this.#refusal = { error: refusal, until: now + CHECK_MS }
    return refusal
  }

  #openFile(): LockFile {
    const now = performance.now()
    if (this.#file !== undefined && now < this.#checkAt) return this.#file
    // Deleted or replaced: use the file that the path leads to now, as other processes do. It does not know the holders of the
    // old file, which learn that from their next renewals.
    if (this.#file?.isInPlace() === false) {
      this.#forgetFile()
      this.#identity = GONE
    }
    this.#file ??= this.#reopened(now)
    this.#checkAt = now + CHECK_MS
    const { identity } = this.#file
    const isAnother = this.#identity !== undefined && identity !== this.#identity
    this.#identity = identity
    this.#onCheck(isAnother)
    return this.#file
  }

  #reopened(now: number): LockFile {
    if (this.#refusal !== undefined && now < this.#refusal.until) {
      const { error } = this.#refusal
      const code = error.code === 'store-refused' ? error.code : 'store-unavailable'
      throw new StoreError(code, error.message, { cause: error })
    }
    return new LockFile(this.#options)
  }

  #forgetFile(): void {
    const file = this.#file
    this.#file = undefined
    file?.close()
  }

  async #serve(): Promise<void> {
    let failures = 1
    while (this.#line.length > 0) {
      await letOthersFinish(failures)
      failures = this.#serveLine() ? 1 : failures + 1
    }
  }

  /** In order of arrival, while the file is free. True if any transaction ran. */
  #serveLine(): boolean {
    const yieldAt = performance.now() + SLICE_MS
    let served = 0
    for (let first = this.#line[0]; first !== undefined; first = this.#line[0]) {
      try {
        first.attempt()
      } catch (error) {
        if (isBusy(error)) {
          this.#giveUp()
          break
        }
        first.reject(error)
      }
      this.#line.shift()
      served += 1
      if (performance.now() >= yieldAt) break
    }
    return served > 0
  }

  #giveUp(): void {
    const now = performance.now()
    while (this.#line[0] !== undefined && this.#line[0].giveUpAt <= now) {
      this.#line
        .shift()
        ?.reject(
          new StoreError(
            'store-unavailable',
            `Another process kept the lock file ${JSON.stringify(this.#options.path)} locked for ${WAIT_LIMIT_MS} ms. If that process was stopped in the middle of a call (SIGSTOP, a debugger), continue or end it.`,
          ),
        )
    }
  }
}

interface WaitingTransaction {
  /** Throws as long as the file is busy. */
  readonly attempt: () => void
  readonly reject: (error: unknown) => void
  readonly giveUpAt: number
}

/** Ten thousand times what a transaction takes. One takes longer only if its process was stopped, or the disk hangs. */
const WAIT_LIMIT_MS = 1000
const SLICE_MS = 2
/** The identity of no file. */
const GONE = ''
const CHECK_MS = 100
/** How often it tries again without a pause. */
const AT_ONCE = 4
const BUSY: Backoff = { firstMs: 2, longestMs: 16, jitter: 1 }

/** Other transactions end within microseconds. Only when they do not, the processor is better used by others. */
function letOthersFinish(failures: number): Promise<void> {
  if (failures <= AT_ONCE) return new Promise((resolve) => setImmediate(resolve))
  return paused(systemClock, backoffMs(BUSY, failures - AT_ONCE))
}
