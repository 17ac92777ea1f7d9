import type { Finding } from '../base/diagnosis.ts'
import type { Store } from '../contract/store.ts'

/** What a store offers to whoever has its URL; drivers.ts lists the schemes of each store. */
export interface Driver {
  /**
   * Opens the store and its client. `store.close()` closes both.
   *
   * @throws {InvalidArgumentError} when the URL is not what it should be, or a package that the store needs is not installed.
   * @throws {StoreError} when the store is not there or refuses.
   */
  open(url: string, options: DriverOptions): Promise<Store>
  /** Findings of `holdfast doctor` that only this kind of store has. An outage is reported by whoever opens the store. */
  diagnose(url: string, options: DriverOptions): Promise<readonly Finding[]>
}

/** How to open a store. */
export interface DriverOptions {
  /** Whether the store is only looked at. A store that can do so then needs no right to write. */
  readonly readOnly: boolean
}
