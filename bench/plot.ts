import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { chartSvg } from './chart.ts'

/** A line of a plot: what something costs at each size, for one candidate. */
export interface Line {
  readonly name: string
  readonly points: readonly (readonly [size: number, cost: number])[]
}

interface Plot {
  readonly title: string
  readonly sizes: string
  readonly costs: string
  readonly lines: readonly Line[]
}

/** Writes an SVG with both axes logarithmic: a cost that does not depend on the size is a level line. */
export async function writePlot(path: string, { title, sizes, costs, lines }: Plot): Promise<void> {
  const values = lines.flatMap(({ name, points }) => points.map(([size, cost]) => ({ name, size, cost })))
  const svg = await chartSvg({
    title,
    width: 480,
    height: 300,
    data: { values },
    mark: { type: 'line', point: true },
    encoding: {
      x: { field: 'size', type: 'quantitative', scale: { type: 'log' }, title: sizes },
      y: { field: 'cost', type: 'quantitative', scale: { type: 'log' }, title: costs },
      color: { field: 'name', type: 'nominal', title: null, sort: null },
    },
  })
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, svg)
}
