import { StoreError } from '../../../errors.ts'
import type { Cluster } from '../grpc/cluster.ts'
import { type KeyValue, TXN } from '../grpc/messages.ts'
import type { KeyNames } from '../rooms/key-names.ts'

/**
 * The number from which fences are counted: a fence is this number plus the create revision of the ticket's key. The first
 * process that uses a prefix writes it once, as µs since 1970. So fences keep rising after a loss of all data, when revisions
 * begin anew. If a key moves here from another store, its fences keep rising only under a new prefix: the number of a prefix in
 * use is as old as the first use.
 *
 * Each acquire compares it in its transaction, so a process never uses the fence base of another etcd.
 */
export class FenceBase {
  readonly #cluster: Cluster
  readonly #name: string
  #known: Base | undefined
  #reading: Promise<Base> | undefined

  readonly #onReset: () => void

  /** `onReset`: the base has changed since it was read, because all data of etcd was lost. */
  constructor(cluster: Cluster, names: KeyNames, onReset: () => void) {
    this.#cluster = cluster
    this.#name = names.meta
    this.#onReset = onReset
  }

  value(): Base | Promise<Base> {
    if (this.#known !== undefined) return this.#known
    this.#reading ??= this.#read().finally(() => {
      this.#reading = undefined
    })
    return this.#reading
  }

  /** As {@link value}, but never writes it: before the first process uses an etcd, there are no fences to show. */
  async look(): Promise<void> {
    const { reply } = await this.#cluster.ask(TXN, {
      when: [],
      apply: [{ tag: 'range', key: this.#name }],
      otherwise: [],
    })
    const [found] = reply.ranges[0]?.pairs ?? []
    if (found !== undefined) this.changed(found)
  }

  /** Whether etcd has another base than this process knows. Notes the new one. */
  changed(found: KeyValue | undefined): boolean {
    if (found !== undefined && found.value === this.#known?.text) return false
    const wasKnown = this.#known !== undefined
    this.#known = found === undefined ? undefined : this.#parsed(found.value)
    if (wasKnown) this.#onReset()
    return true
  }

  /** For people: by the base that this process knows now. */
  fence(createRevision: number): bigint {
    return fenceFrom({ from: this.#known?.from ?? 0n }, createRevision)
  }

  async #read(): Promise<Base> {
    const text = `${LAYOUT} ${Date.now() * 1000}`
    const { reply } = await this.#cluster.ask(TXN, {
      when: [{ that: 'created', is: 'equal', key: this.#name, revision: 0 }],
      apply: [{ tag: 'put', key: this.#name, value: text, lease: 0 }],
      otherwise: [{ tag: 'range', key: this.#name }],
    })
    this.#known = this.#parsed(reply.succeeded ? text : (reply.ranges[0]?.pairs[0]?.value ?? ''))
    return this.#known
  }

  #parsed(text: string): Base {
    const [, layout, from = ''] = /^(\d+) (\d+)$/.exec(text) ?? []
    if (layout === LAYOUT) return { name: this.#name, text, from: BigInt(from) }
    const name = JSON.stringify(this.#name)
    throw new StoreError(
      'store-refused',
      layout === undefined
        ? `The etcd key ${name} is used by something else. Choose another \`prefix\` for etcdStore().`
        : `The etcd key ${name} was written by a newer version of Holdfast (layout ${layout}). Update this one.`,
    )
  }
}

/** The fence of a ticket, by the base that its own transaction has compared. */
export function fenceFrom({ from }: Pick<Base, 'from'>, createRevision: number): bigint {
  return from + BigInt(createRevision)
}

interface Base {
  readonly name: string
  readonly text: string
  readonly from: bigint
}

const LAYOUT = '1'
