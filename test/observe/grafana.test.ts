import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Registry } from 'prom-client'
import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { measureLocks, measureWork } from '../../src/observe/prometheus/index.ts'
import { root } from '../tidy/project.ts'

const folder = new URL('../../src/observe/prometheus/', import.meta.url)
const dashboard = JSON.parse(readFileSync(new URL('grafana-dashboard.json', folder), 'utf8')) as Dashboard
const rules = (parse(readFileSync(new URL('alert-rules.yml', folder), 'utf8')) as { groups: RuleGroup[] })
  .groups

interface Dashboard {
  readonly title: string
  readonly uid: string
  readonly schemaVersion: number
  readonly templating: { readonly list: readonly { readonly name: string; readonly definition?: string }[] }
  readonly panels: readonly Panel[]
}

interface Panel {
  readonly id: number
  readonly type: string
  readonly title: string
  readonly gridPos: Record<'x' | 'y' | 'w' | 'h', number>
  readonly datasource?: { readonly type: string; readonly uid: string }
  readonly targets?: readonly {
    readonly refId: string
    readonly expr: string
    readonly legendFormat: string
  }[]
  readonly fieldConfig?: { readonly defaults: { readonly unit?: string } }
  readonly options?: object
}

interface RuleGroup {
  readonly name: string
  readonly rules: readonly {
    readonly alert: string
    readonly expr: string
    readonly for?: string
    readonly labels: { readonly severity: string }
    readonly annotations: { readonly summary: string; readonly description?: string }
  }[]
}

const charts = dashboard.panels.filter(({ type }) => type !== 'row')
const expressions = [
  ...charts.flatMap(({ title, targets = [] }) =>
    targets.map(({ expr }) => [`panel ${title}`, expr] as const),
  ),
  ...rules.flatMap((group) => group.rules.map(({ alert, expr }) => [`alert ${alert}`, expr] as const)),
]

describe('the dashboard', () => {
  test('has what Grafana needs of a dashboard to import it', () => {
    expect(dashboard).toMatchObject({
      schemaVersion: 39,
      editable: true,
      time: { from: 'now-6h', to: 'now' },
    })
    expect(dashboard.title).not.toBe('')
    expect(dashboard.uid).toMatch(/^[a-z-]{1,40}$/)
    expect(dashboard.templating.list.map(({ name }) => name)).toEqual(['datasource', 'store', 'group'])
    expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length)
    expect(charts.length).toBeGreaterThan(10)
  })

  test('is one by the types that Grafana 10 publishes', () => {
    const folder = mkdtempSync(join(root, 'node_modules', '.grafana-'))
    try {
      // The types name this value by an enum alone, and lack a field that Grafana itself writes for a variable.
      const written = JSON.stringify(dashboard, (name, value) => (name === 'definition' ? undefined : value))
      const value = written.replaceAll('"absolute"', 'ThresholdsMode.Absolute')
      const source = `import { type Dashboard, ThresholdsMode } from '@grafana/schema'\nexport const dashboard: Dashboard = ${value}\n`
      writeFileSync(join(folder, 'dashboard.ts'), source)
      const options = [
        '--ignoreConfig',
        '--noEmit',
        '--strict',
        '--skipLibCheck',
        '--module',
        'nodenext',
        '--types',
        '',
      ]
      const tsc = join(root, 'node_modules', '.bin', 'tsc')
      const { status, stdout } = spawnSync(tsc, [...options, 'dashboard.ts'], {
        cwd: folder,
        encoding: 'utf8',
      })
      expect([status, stdout]).toEqual([0, ''])
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  })

  test.each(charts.map((panel) => [panel.title, panel] as const))('has a whole panel %s', (_, panel) => {
    expect(['stat', 'timeseries']).toContain(panel.type)
    expect(panel.datasource).toEqual({ type: 'prometheus', uid: `\${datasource}` })
    expect(panel.fieldConfig?.defaults.unit).toMatch(/^(short|s|percentunit|reqps|ops)$/)
    expect(panel.options).toBeTypeOf('object')
    expect(panel.targets?.length).toBeGreaterThan(0)
    const refIds = panel.targets?.map(({ refId }) => refId) ?? []
    expect(new Set(refIds).size).toBe(refIds.length)
  })

  test('has panels that fill the grid of 24 columns without lying on one another', () => {
    const taken = new Map<string, string>()
    for (const { title, gridPos } of dashboard.panels) {
      expect(gridPos.x).toBeGreaterThanOrEqual(0)
      expect(gridPos.x + gridPos.w).toBeLessThanOrEqual(24)
      for (let x = gridPos.x; x < gridPos.x + gridPos.w; x += 1) {
        for (let y = gridPos.y; y < gridPos.y + gridPos.h; y += 1) {
          expect(`${taken.get(`${x},${y}`)} under ${title}`).toBe(`undefined under ${title}`)
          taken.set(`${x},${y}`, title)
        }
      }
    }
    const bottom = Math.max(...dashboard.panels.map(({ gridPos }) => gridPos.y + gridPos.h))
    expect(taken.size).toBe(24 * bottom)
  })

  test('uses only variables that it has, or that Grafana gives', () => {
    const known = new Set([
      ...dashboard.templating.list.map(({ name }) => name),
      '__rate_interval',
      '__range',
    ])
    const used = JSON.stringify(dashboard).matchAll(/\$\{?([a-z_]+)/g)
    expect([...used].map(([, name]) => name).filter((name) => !known.has(name ?? ''))).toEqual([])
  })
})

describe('the alert rules', () => {
  test('are one group, with names, a severity and words for the person who is woken', () => {
    expect(rules.map(({ name }) => name)).toEqual(['holdfast'])
    const alerts = rules.flatMap((group) => group.rules)
    expect(new Set(alerts.map(({ alert }) => alert)).size).toBe(alerts.length)
    for (const { alert, labels, annotations, for: duration = '0s' } of alerts) {
      expect(alert).toMatch(/^Holdfast[A-Z][A-Za-z]+$/)
      expect(['warning', 'critical']).toContain(labels.severity)
      expect(annotations.summary.length).toBeGreaterThan(10)
      expect(duration).toMatch(/^\d+[sm]$/)
    }
  })

  test('mention in their words only labels that are left in the result', () => {
    for (const { alert, expr, annotations } of rules.flatMap((group) => group.rules)) {
      const words = Object.values(annotations).join(' ')
      const kept = new Set(
        [...expr.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, labels = '']) => labels.split(/, ?/)),
      )
      for (const [, label = ''] of words.matchAll(/\$labels\.(\w+)/g))
        expect(`${alert}: ${label} ${kept.has(label)}`).toBe(`${alert}: ${label} true`)
    }
  })
})

describe('every expression', () => {
  const metrics = metricsWithLabels()

  test.each(expressions)('of %s asks for metrics and labels that there are', (_, expression) => {
    const selectors = [...expression.matchAll(/\b(holdfast_\w+)(\{[^}]*\})?/g)]
    expect(selectors).not.toEqual([])
    const everyMetric = selectors.map(([, name = '']) => name)
    expect(everyMetric.filter((name) => !metrics.has(name))).toEqual([])
    for (const [, name = '', matchers = ''] of selectors) {
      const labels = [...matchers.matchAll(/(\w+)\s*(?:=~|!~|!=|=)"/g)].map(([, label = '']) => label)
      expect(labels.filter((label) => !metrics.get(name)?.includes(label))).toEqual([])
    }
    const grouped = [...expression.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, list = '']) =>
      list.split(/, ?/),
    )
    // Prometheus itself adds `instance`.
    const known = new Set([...everyMetric.flatMap((name) => metrics.get(name) ?? []), 'instance'])
    expect(grouped.filter((label) => !known.has(label))).toEqual([])
  })

  test.each(expressions)('of %s is balanced, and takes rates of counters alone', (_, expression) => {
    let depth = 0
    for (const character of expression.replaceAll(/"[^"]*"/g, '')) {
      if ('([{'.includes(character)) depth += 1
      if (')]}'.includes(character)) depth -= 1
      expect(depth).toBeGreaterThanOrEqual(0)
    }
    expect(depth).toBe(0)
    for (const [, name = ''] of expression.matchAll(/(?:rate|increase)\((holdfast_\w+)/g))
      expect(name).toMatch(/_(total|bucket|count|sum)$/)
    for (const [, name = ''] of expression.matchAll(/(holdfast_\w+_(?:total|bucket))\b/g))
      expect(expression).toMatch(new RegExp(`(rate|increase)\\(${name}`))
    if (expression.includes('histogram_quantile')) expect(expression).toMatch(/by \(le, /)
  })

  test('together leave out no metric', () => {
    const all = expressions.map(([, expression]) => expression).join(' ')
    const unused = [...metrics.keys()].filter(
      (name) => !all.includes(name) && !all.includes(name.replace(/_(sum|count)$/, '_bucket')),
    )
    expect(unused).toEqual([])
  })
})

/** The metrics as they are exported: a histogram is three. */
function metricsWithLabels(): ReadonlyMap<string, readonly string[]> {
  const registry = new Registry()
  const stops = [measureLocks({ registry }), measureWork({ registry, jobs: { backlog: async () => [] } })]
  const found = new Map<string, readonly string[]>()
  for (const metric of registry.getMetricsAsArray() as unknown as Registered[]) {
    if (metric.type !== 'histogram') found.set(metric.name, metric.labelNames)
    else {
      found.set(`${metric.name}_bucket`, [...metric.labelNames, 'le'])
      found.set(`${metric.name}_sum`, metric.labelNames)
      found.set(`${metric.name}_count`, metric.labelNames)
    }
  }
  for (const stop of stops) stop()
  return found
}

interface Registered {
  readonly name: string
  readonly type: string
  readonly labelNames: readonly string[]
}
