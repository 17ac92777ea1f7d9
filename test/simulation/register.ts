import type { Lease } from '../../src/engine/lease.ts'
import type { StoreWitness } from './store-witness.ts'
import type { Rule } from './violation.ts'

/**
 * The resource that the locks protect. It has one value for each key, and refuses a write with a lower fence than it
 * has seen. Its guard knows only fences. Whether a write was stale is judged by the order of the store's grants.
 */
export class FencedRegister {
  readonly #store: StoreWitness
  readonly #report: (rule: Rule, message: string) => void
  readonly #entries = new Map<string, { fence: bigint; grant: number }>()

  constructor(store: StoreWitness, report: (rule: Rule, message: string) => void) {
    this.#store = store
    this.#report = report
  }

  /** False if the write was refused. */
  write({ key, id, fence }: Lease): boolean {
    const grant = this.#store.grantOf(key, id, fence)
    if (grant === undefined) {
      this.#report('stale write', `${id} wrote ${key} with a fence that was never given: ${fence}`)
      return false
    }
    const { fencedSince } = this.#store
    const entry = this.#entries.get(key)
    if (grant < fencedSince || (entry !== undefined && fence < entry.fence && entry.grant >= fencedSince))
      return false
    if (entry !== undefined && grant < entry.grant)
      this.#report(
        'stale write',
        `${id} wrote ${key} under ${fence} after a later holder with ${entry.fence}`,
      )
    this.#entries.set(key, { fence, grant })
    return true
  }
}
