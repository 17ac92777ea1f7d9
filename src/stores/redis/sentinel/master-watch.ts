import { StoreError } from '../../../errors.ts'
import { textsOf } from '../server/answers.ts'
import {
  type MessageSubscription,
  type RawConnection,
  type RedisLink,
  reconnectDelayMs,
  type ServerAddress,
} from '../server/client-link.ts'
import { replyCode, storeErrorOf, unexpectedReply, wordsOf } from '../server/failures.ts'
import { MovingSubscription } from '../server/moving-subscription.ts'

export interface MasterWatchOptions {
  /** The name by which the Sentinels know the master. */
  readonly name: string
  /** The links to the Sentinels, one to each. */
  readonly sentinels: readonly RedisLink[]
}

/** A Sentinel's answer: where the master is, and the epoch of its configuration. Null: it knows no such master. */
type MasterReport = { readonly address: ServerAddress; readonly epoch: number } | null

/**
 * Knows the address of the master. Asks all Sentinels at once, so one that hangs costs nothing. A majority of answers
 * is enough if one of them names a master. The answer with the highest epoch counts, because a Sentinel that is cut off together with the old master
 * has not seen the fail-over. Until it is closed, it subscribes to the fail-overs that each Sentinel announces.
 *
 * All connections of a store share one search. While no master can be used, the search pauses before it asks again, and longer each
 * time. News of another master ends the pause.
 */
export class MasterWatch {
  readonly #name: string
  readonly #sentinels: readonly RedisLink[]
  readonly #listeners = new Set<(master: ServerAddress) => void>()
  #subscriptions: readonly MessageSubscription[] | undefined
  #known: NonNullable<MasterReport> | undefined
  #round: Promise<ServerAddress> | undefined
  /** Since when the Sentinels that answer have named a lower epoch than before, while others have not answered. */
  #olderSince: number | undefined
  /** How many rounds in a row have led to no master. */
  #failures = 0
  #pausedUntil = 0
  #endPause = (): void => {}
  #closed = false

  constructor({ name, sentinels }: MasterWatchOptions) {
    this.#name = name
    this.#sentinels = sentinels
  }

  /**
   * Waits for the next round, and shares it with all others that wait.
   *
   * @throws {StoreError} when no Sentinel answers, or none knows the master.
   */
  find(): Promise<ServerAddress> {
    if (!this.#closed) this.#subscriptions ??= this.#sentinels.map((sentinel) => this.#listenTo(sentinel))
    this.#round ??= this.#askAfterPause().finally(() => {
      this.#round = undefined
    })
    return this.#round
  }

  /** A server has confirmed that it is the master. */
  confirmed(): void {
    this.#goOn()
  }

  /** The server that a round has named could not be used as the master. */
  failed(address: ServerAddress): void {
    const known = this.#known?.address
    // Another master may be known by now.
    if (this.#round === undefined && known !== undefined && isSame(address, known)) this.#pause()
  }

  /** Calls when the master is found to be another one than before. Returns how to stop. */
  onMove(listener: (master: ServerAddress) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  close(): void {
    this.#closed = true
    this.#listeners.clear()
    this.#endPause()
    for (const subscription of this.#subscriptions ?? []) subscription.close()
  }

  async #askAfterPause(): Promise<ServerAddress> {
    const leftMs = this.#pausedUntil - performance.now()
    if (leftMs > 0) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, leftMs).unref()
        this.#endPause = () => {
          clearTimeout(timer)
          resolve()
        }
      })
    }
    // A timer may fire a little early.
    this.#pausedUntil = 0
    if (this.#closed) throw new Error('The connection was closed')
    try {
      return await this.#askAll()
    } catch (error) {
      this.#pause()
      throw error
    }
  }

  /** Several connections may fail after the same round, which counts once. */
  #pause(): void {
    const now = performance.now()
    if (now < this.#pausedUntil) return
    this.#failures += 1
    this.#pausedUntil = now + reconnectDelayMs(this.#failures)
  }

  /** The next round begins at once, and so does one that waits for the end of the pause. */
  #goOn(): void {
    this.#failures = 0
    this.#pausedUntil = 0
    this.#endPause()
  }

  #askAll(): Promise<ServerAddress> {
    return new Promise((resolve, reject) => {
      const majority = Math.floor(this.#sentinels.length / 2) + 1
      const answers: MasterReport[] = []
      const errors: unknown[] = []
      let decided = false
      const decide = (): void => {
        const best = answers.reduce((one, other) => (epochOf(other) > epochOf(one) ? other : one), null)
        // A Sentinel may know of a fail-over before the others. A majority of the others must not lead back to the old
        // master.
        // Sentinels that were set up anew may know no master yet, so the others are waited for.
        const enough =
          best !== null && answers.length >= majority && epochOf(best) >= epochOf(this.#known ?? null)
        if (decided || (!enough && answers.length + errors.length < this.#sentinels.length)) return
        decided = true
        if (best === null) reject(answers.length > 0 ? this.#unknownMaster() : unreachable(errors))
        else resolve(this.#accepted(best, errors.length > 0).address)
      }
      for (const sentinel of this.#sentinels) {
        this.#ask(sentinel)
          .then(
            (answer) => {
              if (decided) this.#learnIfNewer(answer)
              answers.push(answer)
            },
            (error: unknown) => errors.push(error),
          )
          .then(decide, reject)
      }
    })
  }

  /**
   * If all name a lower epoch than before, the Sentinels were set up anew. If some do not answer, they may be the ones that knew of the
   * fail-over, so the master of before is believed for a while.
   */
  #accepted(best: NonNullable<MasterReport>, someFailed: boolean): NonNullable<MasterReport> {
    const known = this.#known
    if (known === undefined || best.epoch >= known.epoch) this.#olderSince = undefined
    else if (someFailed) {
      const at = performance.now()
      this.#olderSince ??= at
      if (at - this.#olderSince < OLDER_MS) return known
    }
    this.#learn(best)
    return best
  }

  async #ask(sentinel: RedisLink): Promise<MasterReport> {
    const connection = sentinel.open(() => {})
    let limit: NodeJS.Timeout | undefined
    const silence = new Promise<never>((_, reject) => {
      limit = setTimeout(() => reject(new Error('The Sentinel did not answer.')), SILENCE_MS).unref()
    })
    try {
      return await Promise.race([askOn(connection, this.#name), silence])
    } catch (error) {
      throw connection.reasonOf(error)
    } finally {
      clearTimeout(limit)
      connection.close()
    }
  }

  #listenTo(sentinel: RedisLink): MessageSubscription {
    const look = (): void => {
      this.#ask(sentinel).then(
        (answer) => this.#learnIfNewer(answer),
        () => {},
      )
    }
    const subscription = new MovingSubscription({
      channel: '+switch-master',
      find: () => ({ link: sentinel }),
      isFinal: () => false,
      listener: {
        onMessage: (message) => message.startsWith(`${this.#name} `) && look(),
        onResubscribed: look,
      },
    })
    // The Sentinel may have announced another master before the subscription.
    subscription.flowing.then(look, () => {})
    return subscription
  }

  #learnIfNewer(answer: MasterReport): void {
    if (answer !== null && answer.epoch > epochOf(this.#known ?? null)) this.#learn(answer)
  }

  #learn(answer: NonNullable<MasterReport>): void {
    const before = this.#known?.address
    this.#known = answer
    if (before !== undefined && isSame(before, answer.address)) return
    this.#goOn()
    if (before === undefined) return
    for (const listener of this.#listeners) listener(answer.address)
  }

  #unknownMaster(): StoreError {
    return new StoreError(
      'store-refused',
      `The Sentinels know no master called ${JSON.stringify(this.#name)}. Check the name, and that these are the Sentinels that watch it.`,
    )
  }
}

export function isSame(one: ServerAddress, other: ServerAddress): boolean {
  return one.host === other.host && one.port === other.port
}

/** A Sentinel that says nothing for this long is left out. */
const SILENCE_MS = 1000
/** Sentinels tell each other of a fail-over within two seconds. */
const OLDER_MS = 10_000

async function askOn(connection: RawConnection, name: string): Promise<MasterReport> {
  // In a fail-over the first tells the new address, and the second the epoch that belongs to it.
  const [at, facts] = await Promise.all([
    connection.send('SENTINEL', ['GET-MASTER-ADDR-BY-NAME', name]),
    connection.send('SENTINEL', ['MASTER', name]).catch((error: unknown) => {
      if (replyCode(error) === 'ERR' || replyCode(error) === 'IDONTKNOW') return []
      throw error
    }),
  ])
  if (!Array.isArray(at)) return null
  const [host = '', port] = textsOf(at)
  const address = { host, port: Number(port) }
  if (host.length > 255 || !(address.port > 0 && address.port < 65_536)) throw unexpectedReply(at)
  return { address, epoch: configEpochOf(facts) }
}

/** From the fields of a master: a list of names and values, or a map where the client speaks RESP3. */
function configEpochOf(facts: unknown): number {
  const field = 'config-epoch'
  if (Array.isArray(facts)) return Number(facts[facts.indexOf(field) + 1])
  return Number(facts instanceof Map ? facts.get(field) : (facts as Record<string, unknown>)[field])
}

function epochOf(answer: MasterReport): number {
  return answer?.epoch ?? -1
}

function unreachable(errors: readonly unknown[]): StoreError {
  const reply = errors.find((error) => replyCode(error) !== undefined)
  const code = replyCode(reply)
  if (code === 'DENIED') return storeErrorOf(reply, undefined, 0)
  if (code === 'WRONGPASS' || code === 'NOAUTH' || code === 'NOPERM') {
    return new StoreError('store-refused', NO_ACCESS, { cause: wordsOf(reply) })
  }
  const cause = reply === undefined ? errors[0] : wordsOf(reply)
  return new StoreError('store-unavailable', reply === undefined ? NOBODY : NO_SENTINEL, { cause })
}

const NOBODY =
  'No Sentinel could be reached. Check that they run, their addresses, and the network in between.'
const NO_SENTINEL =
  'None of the Sentinels gave an answer that makes sense. Check that the addresses are those of Sentinels, and not of Redis servers.'
const NO_ACCESS =
  'The Sentinels did not accept the user name and password for them, which are others than those for the servers; or they do not allow this user to ask for the master.'
