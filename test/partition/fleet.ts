import { onTestFinished } from 'vitest'
import type { Store } from '../../src/contract/store.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import {
  createPartition,
  type KeyPartition,
  type KeyPartitionOptions,
  type StartedTerm,
} from '../../src/partition/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { until } from '../servers/until.ts'

/** What the members did, in order: one line for each begin and end of work on a key. */
export interface Deed {
  readonly did: 'start' | 'stop'
  readonly who: string
  readonly key: string
  readonly fence: bigint
}

/** Members of one partition, which share a memory store as if they were processes. */
export class Fleet {
  readonly keys: readonly string[]
  readonly store: Store = memoryStore()
  readonly deeds: Deed[] = []
  readonly members = new Map<string, KeyPartition>()
  readonly errors: { readonly who: string; readonly key: string | undefined; readonly during: string }[] = []
  readonly locks: Locks[] = []

  constructor(keyCount = 100) {
    this.keys = Array.from({ length: keyCount }, (_, at) => `k${at}`)
    onTestFinished(async () => {
      await Promise.all(Array.from(this.members.values(), (member) => member.stop()))
      await Promise.all(this.locks.map((locks) => locks.close()))
    })
  }

  /** Starts a member. `play` may delay or break its work. */
  add(
    who: string,
    options: Partial<KeyPartitionOptions> = {},
    play: { start?: (term: StartedTerm<string>) => unknown; stop?: (key: string) => unknown } = {},
    store: Store = this.store,
  ): KeyPartition {
    const locks = createLocks(store, { label: who, ttl: '20s' })
    this.locks.push(locks)
    const note = (did: Deed['did'], { key, fence }: { key: string; fence: bigint }) =>
      this.deeds.push({ did, who, key, fence })
    const member = createPartition(locks, 'fleet', {
      keys: this.keys,
      backoff: 20,
      start: async (term) => {
        note('start', term)
        await play.start?.(term)
      },
      stop: async (term) => {
        await play.stop?.(term.key)
        note('stop', term)
      },
      onError: (_, { key, during }) => this.errors.push({ who, key, during }),
      ...options,
    })
    this.members.set(who, member)
    member.start()
    return member
  }

  async remove(who: string): Promise<void> {
    await this.members.get(who)?.stop()
    this.members.delete(who)
  }

  /** How many keys each member holds, once all of them are held and nobody is to give one away. */
  async settled(sizes: readonly number[]): Promise<void> {
    const now = () => Array.from(this.members.values(), ({ held }) => held.size)
    try {
      await until('the keys are divided', () => String(now()) === String(sizes))
    } catch (cause) {
      throw new Error(`Expected ${sizes}, got ${now()}: ${JSON.stringify(this.errors.slice(0, 5))}`, {
        cause,
      })
    }
  }

  /** Throws if the work on a key began before its last work had ended, or under an older fence. */
  checkOneAtATime(): void {
    const working = new Map<string, Deed>()
    const last = new Map<string, bigint>()
    for (const deed of this.deeds) {
      const { did, key, fence, who } = deed
      const before = working.get(key)
      if (did === 'stop') {
        if (before?.who !== who) throw new Error(`${who} ended ${key}, which ${before?.who} works on`)
        working.delete(key)
        continue
      }
      if (before !== undefined) throw new Error(`${who} began ${key}, which ${before.who} still works on`)
      if (fence <= (last.get(key) ?? 0n)) throw new Error(`${who} began ${key} under an old fence`)
      working.set(key, deed)
      last.set(key, fence)
    }
  }

  /** How often the work on a key began since then. */
  startsSince(count: number): number {
    return this.deeds.slice(count).filter(({ did }) => did === 'start').length
  }
}
