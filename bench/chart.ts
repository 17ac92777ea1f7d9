import { parse, View } from 'vega'
import { compile, type TopLevelSpec } from 'vega-lite'

/** An SVG file, drawn by Vega-Lite. */
export async function chartSvg(spec: TopLevelSpec): Promise<string> {
  const themed = { background: 'white', padding: 10, ...spec } as TopLevelSpec
  const view = new View(parse(compile(themed).spec), { renderer: 'none' })
  return `${await view.toSVG()}\n`
}
