import { StoreError } from '../../../errors.ts'
import type { ClusterLink, RawConnection, ServerAddress } from '../server/client-link.ts'
import { replyCode, unexpectedReply, wordsOf } from '../server/failures.ts'
import { SLOTS } from './slots.ts'

export interface ClusterMapOptions {
  readonly link: ClusterLink
  /** Servers that stopped answering. A slot map that still names one of them as a master is not trusted at once. */
  readonly suspects: () => readonly string[]
}

/** The slot map of one server. */
interface View {
  /** The addresses of the masters, by slot. */
  readonly masters: readonly (string | undefined)[]
  readonly everybody: ReadonlySet<string>
  /** The server says that the cluster is down. It may be cut off from the others, and its map out of date. */
  readonly isDown: boolean
}

/** Which server has which slot, by the last slot map and the refusals since then. */
export class ClusterMap {
  readonly #link: ClusterLink
  readonly #suspects: () => readonly string[]
  #view: View = { masters: [], everybody: new Set(), isDown: false }
  /** The servers of slots, as refusals since the last slot map name them. */
  readonly #learned = new Map<number, string>()
  #round: Promise<ReadonlySet<string>> | undefined

  constructor({ link, suspects }: ClusterMapOptions) {
    this.#link = link
    this.#suspects = suspects
  }

  masterOf(slot: number): string | undefined {
    return this.#learned.get(slot) ?? this.#view.masters[slot]
  }

  /** In the order of their lowest slots. A fail-over does not change this order. */
  get masters(): readonly string[] {
    const masters = new Set<string>()
    for (let slot = 0; slot < SLOTS; slot += 1) {
      const master = this.masterOf(slot)
      if (master !== undefined) masters.add(master)
    }
    return [...masters]
  }

  learn(slot: number, master: string): void {
    this.#learned.set(slot, master)
  }

  /**
   * Asks several servers at once, so that one that is gone costs nothing. Resolves with the servers that have answered.
   * If all of them say that the cluster is down, the last map stays.
   *
   * @throws {StoreError} when none does.
   */
  refresh(): Promise<ReadonlySet<string>> {
    this.#round ??= this.#askAround().finally(() => {
      this.#round = undefined
    })
    return this.#round
  }

  async #askAround(): Promise<ReadonlySet<string>> {
    const suspects = new Set(this.#suspects())
    const known = pick([...this.#view.everybody].filter((address) => !suspects.has(address)))
    const asked = new Set([...known, ...pick(this.#link.seeds.map(addressText)), ...suspects])
    const heard = new Set<string>()
    const errors: unknown[] = []
    let grace: NodeJS.Timeout | undefined
    const best = await new Promise<View | undefined>((resolve) => {
      let open = asked.size
      let second: View | undefined
      let last: View | undefined
      const resolveIn = (graceMs: number): void => {
        clearTimeout(grace)
        grace = setTimeout(() => resolve(second ?? last), graceMs).unref()
      }
      const take = (view: View): void => {
        // A server that has left the cluster, or has not joined it yet, knows of no other.
        if (view.masters.length === 0) return
        if (view.isDown) {
          if (second === undefined && last === undefined) resolveIn(DOWN_GRACE_MS)
          last ??= view
          return
        }
        if (!view.masters.some((master) => master !== undefined && suspects.has(master))) return resolve(view)
        // In a fail-over some servers still name the old master. Or the suspect is back, and will say so within the grace.
        if (second === undefined) resolveIn(GRACE_MS)
        second ??= view
      }
      for (const address of asked) {
        this.#ask(address)
          .then(
            (view) => {
              heard.add(address)
              take(view)
            },
            (error: unknown) => errors.push(error),
          )
          .finally(() => {
            open -= 1
            if (open === 0) resolve(second ?? last)
          })
      }
    })
    clearTimeout(grace)
    if (best === undefined && heard.size === 0) throw unreachable(errors)
    if (best === undefined || (best.isDown && this.#view.masters.length > 0)) return heard
    this.#view = best
    this.#learned.clear()
    return heard
  }

  async #ask(address: string): Promise<View> {
    const connection = this.#link.linkTo(addressOf(address)).open(() => {})
    let limit: NodeJS.Timeout | undefined
    const silence = new Promise<never>((_, reject) => {
      limit = setTimeout(() => reject(new Error('The server did not answer.')), SILENCE_MS).unref()
    })
    try {
      const [slots, isDown] = await Promise.race([askOn(connection), silence])
      return { ...viewOf(slots, address), isDown }
    } catch (error) {
      throw connection.reasonOf(error)
    } finally {
      clearTimeout(limit)
      connection.close()
    }
  }
}

/** `host:port`, also where the host has colons itself. */
function addressText({ host, port }: ServerAddress): string {
  return `${host}:${port}`
}

export function addressOf(text: string): ServerAddress {
  const colon = text.lastIndexOf(':')
  return { host: text.slice(0, colon), port: Number(text.slice(colon + 1)) }
}

/** An address as one server reports it: without a host where it is its own. */
export function reportedAddress(
  teller: string,
  { host, port }: { readonly host: string | null; readonly port: number },
): string {
  return addressText({ host: host || addressOf(teller).host, port })
}

/** A server that says nothing for this long is left out. */
const SILENCE_MS = 3000
const GRACE_MS = 100
/**
 * How long a server that says that the cluster is down waits for one that says otherwise, which may be further away. Longer would
 * delay the fail-over of a cluster of which all servers say so until the old master is replaced.
 */
const DOWN_GRACE_MS = 500
/** How many of the seeds, and of the known servers, are asked. A single answer is enough. */
const MOST_ASKED = 4

function pick(addresses: readonly string[]): string[] {
  const start = Math.floor(Math.random() * addresses.length)
  return [...addresses.slice(start), ...addresses.slice(0, start)].slice(0, MOST_ASKED)
}

/** Slots that one master has, with the addresses of the master and its replicas. */
export interface SlotRange {
  readonly from: number
  readonly to: number
  readonly nodes: readonly { readonly host: string | null; readonly port: number }[]
}

/**
 * Reads the reply to CLUSTER SLOTS.
 *
 * @throws {StoreError} when it is no such reply.
 */
export function slotRanges(reply: unknown): readonly SlotRange[] {
  if (!Array.isArray(reply) || reply.length > SLOTS) throw unexpectedReply(reply)
  return (reply as readonly unknown[]).map((range) => {
    const [from, to, ...nodes] = Array.isArray(range) ? (range as readonly unknown[]) : []
    if (!isSlot(from) || !isSlot(to) || nodes.length > MOST_NODES) throw unexpectedReply(reply)
    return { from, to, nodes: nodes.map(nodeOf) }
  })
}

/** A master and its replicas are fewer. */
const MOST_NODES = 100

function isSlot(slot: unknown): slot is number {
  return Number.isInteger(slot) && (slot as number) >= 0 && (slot as number) < SLOTS
}

function nodeOf(node: unknown): { readonly host: string | null; readonly port: number } {
  const [host, port] = Array.isArray(node) ? (node as readonly unknown[]) : []
  const isHost = host === null || (typeof host === 'string' && host.length < 256)
  if (!isHost || !Number.isInteger(port)) throw unexpectedReply(node)
  return { host: host as string | null, port: port as number }
}

/** The reply to CLUSTER SLOTS, and whether the server says that the cluster is down. */
function askOn(connection: RawConnection): Promise<readonly [slots: unknown, isDown: boolean]> {
  return Promise.all([
    connection.send('CLUSTER', ['SLOTS']),
    connection.send('CLUSTER', ['INFO']).then(
      (info) => typeof info === 'string' && /\bcluster_state:fail\b/.test(info),
      // The user may lack the right to ask.
      () => false,
    ),
  ])
}

function viewOf(reply: unknown, teller: string): Omit<View, 'isDown'> {
  const masters: (string | undefined)[] = []
  const everybody = new Set<string>()
  for (const { from, to, nodes } of slotRanges(reply)) {
    const addresses = nodes.map((node) => reportedAddress(teller, node))
    for (const address of addresses) everybody.add(address)
    for (let slot = from; slot <= to; slot += 1) masters[slot] = addresses[0]
  }
  return { masters, everybody }
}

function unreachable(errors: readonly unknown[]): unknown {
  // An error that a person can mend comes first.
  const reply = errors.find((error) => replyCode(error) !== undefined)
  if (reply instanceof Error && /cluster support disabled/i.test(reply.message)) {
    return new StoreError('store-refused', NO_CLUSTER, { cause: wordsOf(reply) })
  }
  return reply ?? new StoreError('store-unavailable', NOBODY, { cause: errors[0] })
}

const NO_CLUSTER =
  'The Redis server is not part of a cluster. Pass redisStore() a client of a single server, or connect() a redis:// url.'
const NOBODY =
  'No server of the Redis cluster could be reached. Check that they run, their addresses, and the network in between.'
