import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'

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
export function writePlot(path: string, plot: Plot): void {
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, svgOf(plot))
}

function svgOf({ title, sizes, costs, lines }: Plot): string {
  const points = lines.flatMap((line) => line.points)
  const x = axis(
    points.map(([size]) => size),
    { from: LEFT, to: WIDTH - RIGHT },
  )
  const y = axis(
    points.map(([, cost]) => cost),
    { from: HEIGHT - BOTTOM, to: TOP },
  )
  const parts = [
    text(WIDTH / 2, 24, title, 'font-size="16" text-anchor="middle"'),
    text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, sizes, 'text-anchor="middle"'),
    text(20, HEIGHT / 2, costs, `text-anchor="middle" transform="rotate(-90 20 ${HEIGHT / 2})"`),
    ...x.marks.flatMap(({ at, label }) => [
      rule(at, TOP, at, HEIGHT - BOTTOM),
      text(at, HEIGHT - BOTTOM + 20, label, 'text-anchor="middle"'),
    ]),
    ...y.marks.flatMap(({ at, label }) => [
      rule(LEFT, at, WIDTH - RIGHT, at),
      text(LEFT - 8, at + 4, label, 'text-anchor="end"'),
    ]),
    ...lines.flatMap((line, index) =>
      drawn(line, { color: COLORS[index % COLORS.length] ?? '', index, x, y }),
    ),
  ]
  const head = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="sans-serif" font-size="12" fill="#333">`
  return `${head}\n<title>${title}</title>\n<rect width="${WIDTH}" height="${HEIGHT}" fill="#fff"/>\n${parts.join('\n')}\n</svg>\n`
}

interface Axis {
  readonly at: (value: number) => number
  readonly marks: readonly { readonly at: number; readonly label: string }[]
}

/** From the power of ten below the least value to the one above the largest. */
function axis(values: readonly number[], { from, to }: { readonly from: number; readonly to: number }): Axis {
  const least = Math.floor(Math.log10(Math.min(...values)))
  const most = Math.max(least + 1, Math.ceil(Math.log10(Math.max(...values))))
  const at = (value: number): number =>
    Math.round(from + ((Math.log10(value) - least) / (most - least)) * (to - from))
  const marks = Array.from({ length: most - least + 1 }, (_, index) => 10 ** (least + index)).map(
    (value) => ({
      at: at(value),
      label: value.toLocaleString('en', { maximumFractionDigits: 6 }),
    }),
  )
  return { at, marks }
}

function drawn(
  { name, points }: Line,
  {
    color,
    index,
    x,
    y,
  }: { readonly color: string; readonly index: number; readonly x: Axis; readonly y: Axis },
): readonly string[] {
  const places = points.map(([size, cost]) => [x.at(size), y.at(cost)] as const)
  const path = places.map(([left, top]) => `${left},${top}`).join(' ')
  const legend = TOP + 8 + index * 18
  return [
    `<polyline points="${path}" fill="none" stroke="${color}" stroke-width="2"/>`,
    ...places.map(([left, top]) => `<circle cx="${left}" cy="${top}" r="4" fill="${color}"/>`),
    `<rect x="${WIDTH - RIGHT + 12}" y="${legend - 8}" width="10" height="10" fill="${color}"/>`,
    text(WIDTH - RIGHT + 28, legend + 1, name, ''),
  ]
}

function text(x: number, y: number, content: string, attributes: string): string {
  const escaped = content.replace(/[&<>]/g, (sign) => `&#${sign.charCodeAt(0)};`)
  return `<text x="${x}" y="${y}" ${attributes}>${escaped}</text>`
}

function rule(fromX: number, fromY: number, toX: number, toY: number): string {
  return `<line x1="${fromX}" y1="${fromY}" x2="${toX}" y2="${toY}" stroke="#ddd"/>`
}

const WIDTH = 720
const HEIGHT = 400
const LEFT = 80
const RIGHT = 170
const TOP = 50
const BOTTOM = 60
const COLORS = ['#888', '#0b62a4', '#c25b12', '#2e8b57']
