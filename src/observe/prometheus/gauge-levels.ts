import type { Gauge } from 'prom-client'

/** What a gauge shows now, by its labels. */
export class GaugeLevels {
  readonly #levels = new Map<string, GaugeLevel>()

  /** `place`: a text for these labels. */
  add(place: string, by: number, labels: GaugeLevel['labels']): void {
    this.set(place, (this.#levels.get(place)?.level ?? 0) + by, labels)
  }

  set(place: string, level: number, labels: GaugeLevel['labels']): void {
    this.#levels.set(place, { labels, level })
  }

  /** Sets the gauge to the present levels, at each scrape. Changed by steps it would be wrong for ever after a reset of the metrics. */
  showIn(gauge: Gauge): void {
    gauge.reset()
    for (const { labels, level } of this.#levels.values()) gauge.set(labels, level)
  }
}

interface GaugeLevel {
  readonly labels: Readonly<Partial<Record<string, string>>>
  readonly level: number
}
