/** A candidate as the benchmark sees it: it takes a key and gives it back. */
export interface Adapter {
  acquire(key: string): Promise<Release>
  /** Asks once for a key that is taken, and does not wait. */
  attempt?(key: string): Promise<unknown>
  close(): Promise<void>
}

export type Release = () => Promise<void> | void

/** The servers and files of a candidate, made anew for every run of the benchmark. */
export interface Surroundings {
  readonly redisPort: number
  /** Only there for scenarios whose name begins with `postgres`. */
  readonly postgresUrl: string
  /** Only there for scenarios whose name begins with `etcd`. */
  readonly etcdUrl: string
  /** An empty folder, thrown away afterwards. */
  readonly folder: string
}

export type OpenAdapter = (surroundings: Surroundings) => Promise<Adapter>
