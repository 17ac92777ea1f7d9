import { instance } from '@viz-js/viz'

const viz = await instance()

/** Draws the page's Mermaid diagrams, which GitHub draws by itself, in the colours of the text around them. */
export function withDiagrams(markdown: string): string {
  return markdown.replace(/^```mermaid\n([\s\S]*?)^```$/gm, (_, source: string) => {
    const svg = viz
      .renderString(graphOf(source), { format: 'svg' })
      .replace(/^[\s\S]*?(?=<svg)/, '')
      .replace(/<!--[\s\S]*?-->|<title>[\s\S]*?<\/title>/g, '')
      .replaceAll('"black"', '"currentColor"')
      // An empty line would end the block of HTML.
      .replace(/\n+/g, '\n')
    return `<figure class="diagram">\n${svg}</figure>`
  })
}

/** The diagram in the language of Graphviz. */
function graphOf(source: string): string {
  const [kind = '', ...lines] = source.split('\n').filter((line) => line.trim() !== '')
  const body = kind.startsWith('flowchart') ? lines.flatMap(ofFlowchart) : ofStates(kind, lines)
  return [
    'digraph {',
    'compound=true; bgcolor=transparent; fontname="Helvetica"; fontsize=12; nodesep=0.3',
    'node [shape=box, style=rounded, fontname="Helvetica", fontsize=12, height=0.4, margin="0.2,0.05"]',
    'edge [arrowsize=0.6, fontname="Helvetica", fontsize=10]',
    ...body,
    '}',
  ].join('\n')
}

function ofFlowchart(line: string): string[] {
  const [, box, names] = /^\s*(\w+)\["(.+)"\]$/.exec(line) ?? []
  // Three names in a line, because long lines make a wide picture.
  if (names !== undefined)
    return [`${box} [label=${JSON.stringify(names.replace(/((?:[^·]+·){3}) /g, '$1\n'))}]`]
  const [, from, to] = /^\s*(\w+) --> (\w+)$/.exec(line) ?? []
  if (from !== undefined) return [`${from} -> ${to}`]
  throw new Error(`Expected a line of a flowchart such as \`a["text"]\` or \`a --> b\`, got \`${line}\`.`)
}

const START = 'shape=circle, style=filled, label="", height=0.12, fillcolor=black'
const END = 'shape=doublecircle, style=filled, label="", height=0.09, fillcolor=black'

/** A state with states inside becomes a cluster. An arrow to it leads to a point inside, and ends at the edge of the cluster. */
function ofStates(kind: string, lines: readonly string[]): string[] {
  if (kind !== 'stateDiagram-v2')
    throw new Error(`Expected a flowchart or a stateDiagram-v2, got \`${kind}\`.`)
  const outer = new Set(lines.flatMap((line) => /^\s*state (\w+) \{$/.exec(line)?.[1] ?? []))
  return lines.flatMap((line, index) => {
    // Between parts that are active at the same time.
    if (/^\s*--$/.test(line)) return []
    if (/^\s*\}$/.test(line)) return ['}']
    const [, cluster] = /^\s*state (\w+) \{$/.exec(line) ?? []
    if (cluster !== undefined) {
      return [
        `subgraph cluster_${cluster} { label="${cluster}"; style=rounded`,
        `inside_${cluster} [style=invis, shape=point]`,
      ]
    }
    const [, label, name] = /^\s*state "(.+)" as (\w+)$/.exec(line) ?? []
    if (label !== undefined) return [`${name} [label=${inLines(label, ': ')}]`]
    const [, from, to = '', text = ''] = /^\s*(\[\*\]|\w+) --> (\[\*\]|\w+)(?: : (.+))?$/.exec(line) ?? []
    if (from === undefined) throw new Error(`Expected a line of a state diagram, got \`${line}\`.`)
    const nodeOf = (state: string): string => {
      if (state === '[*]') return `point${index}`
      return outer.has(state) ? `inside_${state}` : state
    }
    const attributes = [
      ...(text === '' ? [] : [`label=${inLines(text, ', ')}`]),
      ...(outer.has(from) ? [`ltail=cluster_${from}`] : []),
      ...(outer.has(to) ? [`lhead=cluster_${to}`] : []),
    ]
    return [
      ...(from === '[*]' ? [`point${index} [${START}]`] : []),
      ...(to === '[*]' ? [`point${index} [${END}]`] : []),
      `${nodeOf(from)} -> ${nodeOf(to)} [${attributes.join(', ')}]`,
    ]
  })
}

/** A text with a break after each mark, because long lines make a wide picture. */
function inLines(text: string, mark: string): string {
  return JSON.stringify(` ${text.replaceAll(mark, `${mark.trim()} \n `)} `)
}
