import { drawn, element, setText } from './elements.js'

/** A line without axes. Text beside it says what it means. */
export function sparkline({ width = 96, height = 24 } = {}) {
  const area = drawn('path', { class: 'area' })
  const line = drawn('path', { class: 'line' })
  const node = drawn(
    'svg',
    {
      class: 'sparkline',
      viewBox: `0 0 ${width} ${height}`,
      preserveAspectRatio: 'none',
      'aria-hidden': 'true',
    },
    area,
    line,
  )
  return {
    node,
    /** @param points pairs of a place from 0 to 1 and a value. */
    update(points) {
      const most = Math.max(1, ...points.map(([, value]) => value))
      const steps = points.map(([x, value]) => {
        const y = height - 1.5 - (value / most) * (height - 3)
        return `${(x * width).toFixed(1)},${y.toFixed(1)}`
      })
      // Zeros alone are not worth a line.
      const isFlat = points.every(([, value]) => value === 0)
      const path = isFlat ? '' : `M${steps.join('L')}`
      line.setAttribute('d', path)
      area.setAttribute('d', path === '' ? '' : `${path}V${height}H${steps[0].split(',')[0]}Z`)
    },
  }
}

/** Values at equal distances, the last one at the right edge. */
export function evenly(values, places) {
  return values.map((value, index) => [(places - values.length + index) / Math.max(1, places - 1), value])
}

/** Values that stay until the next one, as points of a line with steps. */
export function stepwise(samples, fromAt, toAt) {
  const points = []
  for (const [index, [at, value]] of samples.entries()) {
    const untilAt = samples[index + 1]?.[0] ?? toAt
    if (untilAt < fromAt) continue
    const place = (time) => Math.min(1, Math.max(0, (time - fromAt) / (toAt - fromAt)))
    points.push([place(at), value], [place(untilAt), value])
  }
  return points
}

/**
 * A number with its title and its history as a line. It leads to what it counts.
 * @param {string} title
 * @param {{ href: string, tone?: 'warn' }} options
 */
export function statistic(title, { href, tone }) {
  const number = element('strong')
  const chart = sparkline({ width: 120, height: 28 })
  const name = element('span', {}, title)
  const node = element('a', { class: 'statistic', href, 'data-tone': tone }, name, number, chart.node)
  return {
    node,
    name: (text) => setText(name, text),
    update(text, values, places) {
      setText(number, text)
      chart.update(evenly(values, places))
    },
  }
}
