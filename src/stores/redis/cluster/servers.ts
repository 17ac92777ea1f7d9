import { type Backoff, backoffMs } from '../../../base/backoff.ts'
import { systemClock } from '../../../base/clock.ts'
import { closedStoreError } from '../../../base/closed.ts'
import { StoreError } from '../../../errors.ts'
import {
  type ClusterLink,
  type MessageListener,
  type MessageSubscription,
  reconnectDelayMs,
} from '../server/client-link.ts'
import { replyCode, storeErrorOf } from '../server/failures.ts'
import { warnOfMissingMessages } from '../server/missing-messages.ts'
import { NotReplicatedError } from '../server/replication.ts'
import type { RoomNames } from '../server/room-names.ts'
import type { Scripts } from '../server/scripts.ts'
import {
  type Partition,
  SCAN_START,
  type Scanned,
  type ScanRequest,
  type Topology,
} from '../server/topology.ts'
import { ClusterInbox } from './inbox.ts'
import { addressOf, ClusterMap, reportedAddress } from './map.ts'
import { ClusterNode } from './node.ts'
import { refusalOf } from './refusals.ts'
import { clusterScripts } from './scripts.ts'
import { SlotNames } from './slot-names.ts'
import { SlotPartition, type SlotRequest, type SlotRouter } from './slot-partition.ts'

/**
 * The servers of a Redis Cluster, each on a connection of its own. So a server that hangs holds up only its own keys.
 * The clients' own support of clusters is not used. It has one queue for all servers, and repeats requests by its own
 * rules. It does not leave a server that still answers although it is no master any more.
 */
export class ClusterServers implements Topology, SlotRouter {
  readonly scripts: Scripts = clusterScripts
  readonly #link: ClusterLink
  readonly #names: RoomNames
  readonly #slotNames: SlotNames
  readonly #replicas: number
  readonly #readOnly: boolean
  readonly #map: ClusterMap
  readonly #nodes = new Map<string, ClusterNode>()
  readonly #partitions = new Map<number, SlotPartition>()
  readonly #inboxes = new Set<ClusterInbox>()
  #watching: NodeJS.Timeout | undefined
  #searching: 'once' | 'again' | undefined
  /** How many searches in a row have ended with a refusal. */
  #refused = 0
  #pause: NodeJS.Timeout | undefined
  #closed = false

  constructor(
    link: ClusterLink,
    {
      names,
      replicas,
      readOnly = false,
    }: { readonly names: RoomNames; readonly replicas: number; readonly readOnly?: boolean | undefined },
  ) {
    this.#link = link
    this.#names = names
    this.#slotNames = new SlotNames(names)
    this.#replicas = replicas
    this.#readOnly = readOnly
    this.#map = new ClusterMap({ link, suspects: () => this.#suspects() })
  }

  divide<Asked extends { readonly key: string }>(
    asked: readonly Asked[],
  ): readonly (readonly [Partition, readonly Asked[]])[] {
    const parts = new Map<Partition, Asked[]>()
    for (const each of asked) {
      const partition = this.#partitionOf(this.#slotNames.slotOf(each.key))
      const part = parts.get(partition)
      if (part === undefined) parts.set(partition, [each])
      else part.push(each)
    }
    return [...parts]
  }

  subscribe(inbox: string, listener: MessageListener): MessageSubscription {
    const subscription = new ClusterInbox({
      inbox,
      listener,
      names: this.#names,
      pick: (except) => this.#pick(except),
      onLost: (node) => this.#suspect(node),
    })
    this.#inboxes.add(subscription)
    subscription.flowing.catch(() => this.#inboxes.delete(subscription))
    return subscription
  }

  async scan(from: string, { pattern, count }: ScanRequest): Promise<Scanned> {
    if (this.#map.masters.length === 0) await this.#map.refresh()
    // Looked up once: the masters may change while one answers.
    const { masters } = this.#map
    const start = from === SCAN_START ? FIRST : (JSON.parse(from) as ScanPosition)
    const open = masters.filter((each) => !start.done.includes(each))
    const address = open.includes(start.address) ? start.address : open[0]
    if (address === undefined) return { names: [], at: from, next: undefined }
    const cursor = address === start.address ? start.cursor : '0'
    const node = this.#nodeAt(address)
    const [next, names] = await this.#answered(node, node.connection.scan(cursor, { pattern, count }))
    const done = next === '0' ? [...start.done, address] : start.done
    const following = next === '0' ? open.find((each) => each !== address) : address
    return {
      names,
      at: positionText({ done: start.done, address, cursor }),
      next: following === undefined ? undefined : positionText({ done, address: following, cursor: next }),
    }
  }

  /** Rooms are read from the masters. */
  async isReplica(): Promise<boolean> {
    return false
  }

  assertOpen(): void {
    if (this.#closed) throw closedStoreError('redisStore()')
  }

  failure(error: unknown, key?: string): StoreError {
    if (error instanceof NotReplicatedError) return error.asStoreError(key)
    return storeErrorOf(error, key, 0)
  }

  close(): void {
    this.#closed = true
    clearTimeout(this.#watching)
    clearTimeout(this.#pause)
    for (const inbox of this.#inboxes) inbox.close()
    for (const node of this.#nodes.values()) node.close()
  }

  async reach<Reply>(slot: number, request: SlotRequest<Reply>): Promise<Reply> {
    const giveUpAt = performance.now() + MOVING_MS
    let importer: string | undefined
    for (let redirections = 0; ; ) {
      this.assertOpen()
      const address = importer ?? this.#map.masterOf(slot) ?? (await this.#find(slot))
      const node = this.#nodeAt(address)
      if (importer !== undefined) node.isImporting = true
      try {
        return await this.#answered(
          node,
          importer === undefined ? request.run(node.connection) : request.ask(node.connection),
        )
      } catch (error) {
        const refusal = refusalOf(error)
        importer = undefined
        switch (refusal.tag) {
          case 'moved':
            this.#map.learn(refusal.slot, reportedAddress(address, refusal.to))
            this.#search()
            redirections += 1
            break
          case 'ask':
            importer = reportedAddress(address, refusal.to)
            break
          case 'moving':
            // Some keys of the script are on one server and some on the other. The server refused the script before it
            // did anything.
            await new Promise<void>((resolve) => systemClock.startTimer(MOVING_PAUSE_MS, resolve))
            break
          case 'down':
            this.#search()
            throw error
          case 'failed':
            throw error
          default:
            refusal satisfies never
        }
        if (redirections > MOST_REDIRECTIONS)
          throw new StoreError('store-unavailable', DISAGREE, { cause: error })
        if (performance.now() > giveUpAt) throw new StoreError('store-unavailable', MOVING, { cause: error })
      }
    }
  }

  listenTo(slot: number, untilMs: number): void {
    const address = this.#map.masterOf(slot)
    if (address === undefined || this.#closed) return
    for (const inbox of this.#inboxes) {
      this.#nodeAt(address).listen(this.#slotNames.channelIn(slot, inbox.name), {
        untilMs,
        onMessage: (id) => inbox.take(id),
        onLost: () => inbox.missed(),
      })
    }
  }

  #partitionOf(slot: number): SlotPartition {
    const known = this.#partitions.get(slot)
    if (known !== undefined) return known
    const partition = new SlotPartition(this, { slot, fence: this.#slotNames.fenceIn(slot) })
    this.#partitions.set(slot, partition)
    return partition
  }

  async #find(slot: number): Promise<string> {
    await this.#map.refresh()
    const master = this.#map.masterOf(slot)
    if (master === undefined) throw new StoreError('store-unavailable', NO_MASTER)
    return master
  }

  #nodeAt(address: string): ClusterNode {
    const known = this.#nodes.get(address)
    if (known !== undefined) return known
    const node: ClusterNode = new ClusterNode(this.#link.linkTo(addressOf(address)), {
      address,
      replicas: this.#replicas,
      readOnly: this.#readOnly,
      onLost: () => this.#suspect(node),
      onMute: () => warnOfMissingMessages(this.#names),
    })
    this.#nodes.set(address, node)
    return node
  }

  /** The reply of a server. Until it comes, the server is watched for silence. */
  async #answered<T>(node: ClusterNode, reply: Promise<T>): Promise<T> {
    this.#watch()
    try {
      return await reply
    } catch (error) {
      const silent = !(error instanceof StoreError || error instanceof NotReplicatedError)
      if (silent && replyCode(error) === undefined) this.#suspect(node)
      throw error
    }
  }

  #watch(): void {
    this.#watching ??= setTimeout(() => {
      this.#watching = undefined
      let open = false
      for (const node of this.#nodes.values()) {
        const { silentMs } = node.connection
        if (silentMs > 0) open = true
        if (silentMs > SILENCE_MS) this.#suspect(node)
      }
      if (open) this.#watch()
    }, WATCH_MS).unref()
  }

  /** The server may be gone, or be replaced: the others are asked. */
  #suspect(node: ClusterNode): void {
    if (this.#closed || this.#nodes.get(node.address) !== node) return
    if (node.suspect) {
      // The last search has ended with a refusal, and its reason may be gone by now.
      if (this.#searching === undefined) this.#search()
      return
    }
    node.suspect = true
    this.#refused = 0
    for (const inbox of this.#inboxes) inbox.leave(node)
    this.#search()
  }

  /** Refreshes the map, and goes on with growing pauses as long as a server is suspected. */
  #search(attempt = 1): void {
    if (this.#searching !== undefined || this.#closed) {
      this.#searching = 'again'
      return
    }
    this.#searching = 'once'
    void this.#map
      .refresh()
      .then(
        (heard) => {
          this.#refused = 0
          return this.#compare(heard)
        },
        (error: unknown) => {
          // A refusal needs a person, and the next request reports it: no reason to search on.
          const isRefused = storeErrorOf(error, undefined, 0).code === 'store-refused'
          if (isRefused) this.#refused += 1
          return !isRefused
        },
      )
      .then((isUnsure) => {
        if (this.#closed) return
        const pauseMs = this.#refused > 0 ? reconnectDelayMs(this.#refused) : backoffMs(SEARCHING, attempt)
        this.#pause = setTimeout(() => {
          const again = this.#searching === 'again'
          this.#searching = undefined
          if (again || isUnsure) this.#search(again ? 1 : attempt + 1)
        }, pauseMs).unref()
      })
  }

  /** Compares the servers with the new map. True: a suspected server has no successor yet. */
  #compare(heard: ReadonlySet<string>): boolean {
    const masters = new Set(this.#map.masters)
    let changed = false
    for (const node of this.#nodes.values()) {
      if (masters.has(node.address)) {
        node.isImporting = false
        if (!node.suspect || !heard.has(node.address) || node.connection.silentMs > SILENCE_MS) continue
        node.suspect = false
      } else {
        // A server that is importing its first slot is in no map yet.
        if (node.isImporting && !node.suspect) continue
        // Its answers do not count any more. Open requests are rejected, and go to its successor.
        this.#nodes.delete(node.address)
        node.leave()
        for (const inbox of this.#inboxes) inbox.leave(node)
      }
      changed = true
    }
    if (changed) for (const inbox of this.#inboxes) inbox.missed()
    return this.#suspects().length > 0
  }

  #suspects(): string[] {
    return [...this.#nodes.values()].flatMap(({ suspect, address }) => (suspect ? [address] : []))
  }

  /** Any server: a message to all reaches each of them. */
  async #pick(except: ClusterNode | undefined): Promise<ClusterNode> {
    if (this.#map.masters.length === 0) await this.#map.refresh()
    const nodes = this.#map.masters.map((address) => this.#nodeAt(address))
    const sound = nodes.filter((node) => !node.suspect && node !== except)
    const choice = sound.length > 0 ? sound : nodes
    return choice[Math.floor(Math.random() * choice.length)] as ClusterNode
  }
}

/**
 * Where a scan goes on. A master that comes in the place of another one is asked from its start: slots that move may be listed twice, and no
 * master is left out.
 */
interface ScanPosition {
  /** The addresses of the masters that have told all. */
  readonly done: readonly string[]
  readonly address: string
  readonly cursor: string
}

const FIRST: ScanPosition = { done: [], address: '', cursor: '0' }

function positionText(position: ScanPosition): string {
  return JSON.stringify(position)
}

const MOST_REDIRECTIONS = 5
/** How long a request waits for a slot that is moving, and the pause between two tries. Then it fails, and the engine asks again. */
const MOVING_MS = 1000
const MOVING_PAUSE_MS = 20
/** A server with a request open for this long without any answer is suspected. */
const SILENCE_MS = 1000
const WATCH_MS = 250
const SEARCHING: Backoff = { firstMs: 50, longestMs: 300, jitter: 0.5 }

const MOVING =
  'The slot of the key is being moved to another server of the Redis cluster, which takes longer than a request may. It goes on when the slot is there.'
const DISAGREE =
  'The servers of the Redis cluster do not agree on who has the slot of the key. While slots are divided anew this passes by itself.'
const NO_MASTER =
  'No server of the Redis cluster has the slot of the key. See `redis-cli --cluster check`; in a fail-over this passes by itself.'
