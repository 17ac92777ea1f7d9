import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { Row } from './comparison.ts'
import { libraries } from './libraries.ts'

/** docs/compare.md. */
export function pageOf(rows: readonly Row[]): string {
  const faults = [...new Set(rows.map(({ fault }) => fault))]
  const names = [...new Set(libraries.map(({ name }) => name))]
  const packages = names.map((name) => {
    const kinds = libraries.filter((library) => library.name === name)
    const settings = [...new Set(kinds.map((library) => library.settings))].join('; ')
    return `| [${name}](https://www.npmjs.com/package/${name}) | ${versionOf(name)} | ${kinds.map(({ kind }) => NAMES[kind]).join(', ')} | ${settings} |`
  })
  const overview = faults.map((fault) => {
    const cells = names.map((name) =>
      marks(rows.filter((row) => row.fault === fault && row.library.name === name)),
    )
    return `| [${fault.title}](#${anchorOf(fault.title)}) | ${cells.join(' | ')} |`
  })
  return `${[
    '# What breaks, and in which library',
    '',
    `Written by \`npm run compare\` on ${new Date().toISOString().slice(0, 10)}, never by hand. It plays the same faults for Holdfast and for the`,
    'packages that people use for the same purpose, on real servers, through a proxy that loses and delays what a network can lose and delay.',
    '',
    '| package | version | on | settings |',
    '|---|---|---|---|',
    ...packages,
    '',
    `✓: as expected. ✗: not. –: the package has nothing of the kind. Several signs stand for ${Object.values(NAMES).join(', ')}, in this order, as far as the package has them.`,
    '',
    `| fault | ${names.join(' | ')} |`,
    `|---|${names.map(() => '---').join('|')}|`,
    ...overview,
    '',
    'Some of these packages do not promise what is expected here: each says what it is for. The question is only what a program can rely on.',
    '[Moving from another library](moving.md) says what each of them does better.',
    'Each row can be seen by itself, in a copy of the repository:',
    '',
    '```sh',
    'npm run compare -- --only lost-reply',
    '```',
    '',
    ...faults.flatMap((fault) => [
      `## ${fault.title}`,
      '',
      fault.story,
      '',
      `**Expected:** ${fault.expected} \`--only ${fault.id}\``,
      '',
      '| | on | | seen |',
      '|---|---|---|---|',
      ...rows
        .filter((row) => row.fault === fault)
        .map(
          ({ library, seen }) =>
            `| ${library.name} | ${NAMES[library.kind]} | ${mark(seen)} | ${escaped(seen?.what ?? 'has none')} |`,
        ),
      '',
    ]),
  ].join('\n')}`
}

const NAMES = { redis: 'one Redis', redlock: 'three Redis', etcd: 'etcd', memory: 'one process' } as const

function marks(rows: readonly Row[]): string {
  return rows.map(({ seen }) => mark(seen)).join(' ') || '–'
}

function mark(seen: Row['seen']): string {
  if (seen === undefined) return '–'
  return seen.isKept ? '✓' : '✗'
}

/** The anchor that GitHub gives a heading. */
function anchorOf(title: string): string {
  return title
    .toLowerCase()
    .replace(/[^\w -]/g, '')
    .replaceAll(' ', '-')
}

function escaped(text: string): string {
  return text.replaceAll('|', '\\|').replaceAll('<', '&lt;').replaceAll('\n', ' ')
}

function versionOf(name: string): string {
  const path = name === 'holdfast' ? '../package.json' : `../node_modules/${name}/package.json`
  const { version } = JSON.parse(readFileSync(fileURLToPath(new URL(path, import.meta.url)), 'utf8')) as {
    version: string
  }
  return version.replace(/^v/, '')
}
