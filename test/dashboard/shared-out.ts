import type { Store } from '../../src/contract/store.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { createPartition, type KeyPartition } from '../../src/partition/index.ts'

/** Partitions whose members share a store as if they were processes. */
export class SharedOut implements AsyncDisposable {
  readonly store: Store
  /** Those of nobody that takes part. */
  readonly locks: Locks
  readonly #members: { readonly locks: Locks; readonly member: Member }[] = []

  constructor(store: Store) {
    this.store = store
    this.locks = createLocks(store, { label: 'dashboard' })
  }

  join(label: string, { name = 'customers', weight = 1, ...divided }: Divided): Member {
    const locks = createLocks(this.store, { label })
    let hanging: PromiseWithResolvers | undefined
    const work = { weight, grace: '5m', start: () => {}, stop: () => hanging?.promise }
    const partition =
      'keys' in divided
        ? createPartition(locks, name, { ...work, keys: divided.keys })
        : createPartition(locks, name, { ...work, partitions: divided.partitions })
    const member: Member = {
      partition: partition as Member['partition'],
      hang: () => {
        hanging = withResolvers()
      },
      goOn: () => {
        hanging?.resolve()
        hanging = undefined
      },
    }
    this.#members.push({ locks, member })
    partition.start()
    return member
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(
      this.#members.map(async ({ locks, member }) => {
        member.goOn()
        await member.partition.stop()
        await locks.close()
      }),
    )
    await this.locks.close()
  }
}

type Divided = { readonly name?: string; readonly weight?: number } & (
  | { readonly keys: readonly string[] }
  | { readonly partitions: number }
)

export interface Member {
  readonly partition: KeyPartition<string | number>
  /** From now on, no work on a key ends. */
  hang(): void
  goOn(): void
}

interface PromiseWithResolvers {
  readonly promise: Promise<void>
  readonly resolve: () => void
}

function withResolvers(): PromiseWithResolvers {
  let resolve = () => {}
  const promise = new Promise<void>((done) => {
    resolve = done
  })
  return { promise, resolve }
}
