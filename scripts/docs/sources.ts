import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { dirname, extname, join } from 'node:path'
import { type Application, Converter, DefaultTheme, PageEvent, RendererEvent } from 'typedoc'

const SCHEME = 'source:'

export function sourceLink(path: string): string {
  return SCHEME + path
}

const LANGUAGES: Readonly<Record<string, string>> = {
  '.ts': 'typescript',
  '.mjs': 'javascript',
  '.js': 'javascript',
  '.json': 'json',
  '.lua': 'lua',
  '.sql': 'sql',
}

/** Writes each file of the repository that a page links to as a page of its own, so that the links work without a network. */
export function writeSources(app: Application, root: string): void {
  const paths = new Set<string>()
  app.converter.on(Converter.EVENT_END, ({ project }) => {
    for (const one of Object.values(project.reflections)) {
      if (!one.isDeclaration() && !one.isSignature()) continue
      for (const source of one.sources ?? []) {
        if (source.fileName.startsWith('src/')) source.url = `${sourceLink(source.fileName)}#L${source.line}`
      }
    }
  })
  app.renderer.on(PageEvent.END, (page) => {
    const up = '../'.repeat(page.url.split('/').length - 1)
    if (page.contents === undefined) return
    page.contents = page.contents.replace(/(?<=href=")source:([^"#]+)/g, (_, path: string) => {
      paths.add(path)
      return `${up}${urlOf(path)}`
    })
  })
  const highlighted = (theme: DefaultTheme, path: string): string => {
    const text = readFileSync(join(root, path), 'utf8')
    return theme.markedPlugin.getHighlighted(text, LANGUAGES[extname(path)] ?? 'text')
  }
  const listed = (path: string): string => {
    const up = '../'.repeat(path.split('/').length)
    const files = readdirSync(join(root, path))
      .sort()
      .map((name) => `${path}/${name}`)
    for (const one of files) paths.add(one)
    return files.map((one) => `<a href="${up}${urlOf(one)}">${one}</a>\n`).join('')
  }
  // Before TypeDoc writes the colours that were used.
  const early = 100
  app.renderer.on(
    RendererEvent.END,
    ({ outputDirectory }) => {
      const { theme } = app.renderer
      if (!(theme instanceof DefaultTheme))
        throw new Error('Sources are highlighted as the default theme does it.')
      for (const path of paths) {
        const file = join(outputDirectory, urlOf(path))
        mkdirSync(dirname(file), { recursive: true })
        const html = statSync(join(root, path)).isDirectory() ? listed(path) : highlighted(theme, path)
        writeFileSync(file, sourcePage(path, html))
      }
    },
    early,
  )
}

function urlOf(path: string): string {
  return `source/${path}.html`
}

function sourcePage(path: string, html: string): string {
  const up = '../'.repeat(path.split('/').length)
  const lines = html.split(/<br\/?>|\n/).map((line, index) => `<span id="L${index + 1}">${line}</span>`)
  return `<!DOCTYPE html>
<html class="default" lang="en">
<head>
<meta charset="utf-8"/>
<title>${path} | holdfast</title>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<link rel="stylesheet" href="${up}assets/style.css"/>
<link rel="stylesheet" href="${up}assets/highlight.css"/>
<link rel="stylesheet" href="${up}assets/custom.css"/>
</head>
<body class="source">
<script>document.documentElement.dataset.theme = localStorage.getItem("tsd-theme") || "os";</script>
<header><a href="${up}index.html">holdfast</a> <h1>${path}</h1></header>
<pre><code>${lines.join('\n')}
</code></pre>
</body>
</html>
`
}
