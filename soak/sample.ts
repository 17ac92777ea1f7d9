/** What one process of the soak uses. Latencies are of the time since the sample before. */
export interface ProcessSample {
  readonly rssBytes: number
  /** After a garbage collection. */
  readonly heapBytes: number
  readonly externalBytes: number
  /** Timers, sockets and whatever else keeps the event loop of the process alive. */
  readonly handles: number
  /** Calls that took, used and gave back a lock, or gave up as they should, since the start of the process. */
  readonly cycles: number
  /** Leases that were lost, since the start of the process. */
  readonly lost: number
  /** Errors that no call should have had, by code, since the start of the process. */
  readonly errors: Readonly<Record<string, number>>
  /** Taking a key that nobody has ever held. */
  readonly freeKey: Percentiles
  /** Taking a key for which all processes queue. */
  readonly busyKey: Percentiles
}

export interface Percentiles {
  readonly p50Ms: number
  readonly p99Ms: number
  readonly mostMs: number
}

/** What the server of a store uses. */
export interface ServerSample {
  /** The memory of all its processes, where a page that several of them share counts once. */
  readonly memoryBytes: number
  /** Its clients. On etcd: its open files, which are sockets for the most part. */
  readonly connections: number
  /** What it keeps: bytes of its data set, of its tables, of its database or of its file. */
  readonly storedBytes: number
}

/** One row of the record. */
export interface Sample extends ServerSample {
  /** Since the start of the soak. */
  readonly atMs: number
  /** The sum over the processes that live as long as the soak does. */
  readonly rssBytes: number
  readonly heapBytes: number
  readonly handles: number
  readonly cycles: number
  readonly freeKeyP50Ms: number
  readonly freeKeyP99Ms: number
  readonly busyKeyP50Ms: number
  readonly busyKeyP99Ms: number
}
