import type { Chronicle, DemoEvent, HandOver } from './chronicle.ts'

/** Works out from the events which worker took over from which, after what, and how long the key had no holder. */
export class HandOvers {
  readonly #chronicle: Chronicle
  readonly #tookMs: Record<HandOver, number[]> = { release: [], term: [], kill: [], stop: [] }
  /** Workers that were told to end. */
  readonly #ending = new Set<number>()
  #holder: number | undefined
  #end: { readonly atMs: number; readonly worker: number; readonly after: HandOver } | undefined

  constructor(chronicle: Chronicle) {
    this.#chronicle = chronicle
    chronicle.listen((event) => this.#see(event))
  }

  get holder(): number | undefined {
    return this.#holder
  }

  /** The durations of hand-overs with this cause in milliseconds, oldest first. */
  after(cause: HandOver): readonly number[] {
    return this.#tookMs[cause]
  }

  #see(event: DemoEvent): void {
    const { worker, atMs } = event
    switch (event.tag) {
      case 'struck':
        if (event.fault === 'term') this.#ending.add(worker)
        else this.#over({ atMs, worker, after: event.fault })
        return
      case 'released':
        this.#over({ atMs, worker, after: this.#ending.has(worker) ? 'term' : 'release' })
        return
      case 'acquired':
        this.#takeOver(worker, atMs)
        return
      default:
    }
  }

  #over(end: { atMs: number; worker: number; after: HandOver }): void {
    if (end.worker !== this.#holder) return
    this.#holder = undefined
    this.#end = end
  }

  #takeOver(worker: number, atMs: number): void {
    const end = this.#end
    this.#holder = worker
    this.#end = undefined
    if (end === undefined) return
    const tookMs = atMs - end.atMs
    this.#tookMs[end.after].push(tookMs)
    this.#chronicle.tell({ tag: 'took-over', atMs, worker, from: end.worker, after: end.after, tookMs })
  }
}
