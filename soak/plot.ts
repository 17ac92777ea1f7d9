import { chartSvg } from '../bench/chart.ts'
import { SERIES } from './report.ts'
import type { Sample } from './sample.ts'

/** One small plot for each series, all over the same time, each from zero. */
export async function drawSamples(store: string, samples: readonly Sample[]): Promise<string> {
  const values = SERIES.flatMap(({ label, unit, of }) =>
    samples.map((sample) => ({
      minutes: sample.atMs / 60_000,
      value: of(sample),
      series: unit === '' ? label : `${label} (${unit})`,
    })),
  )
  return chartSvg({
    title: `Soak on ${store}`,
    data: { values },
    facet: { field: 'series', type: 'nominal', title: null, sort: null },
    columns: 3,
    resolve: { scale: { y: 'independent' } },
    spec: {
      width: 200,
      height: 110,
      mark: { type: 'line', color: '#0b62a4' },
      encoding: {
        x: { field: 'minutes', type: 'quantitative' },
        y: { field: 'value', type: 'quantitative', title: null },
      },
    },
  })
}
