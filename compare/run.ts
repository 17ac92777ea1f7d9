/**
 * Plays faults for this library and for its peers, and writes docs/compare.md:
 * `npm run compare -- [--only FAULT] [--library NAME] [--json] [--list]`.
 *
 * With `--only` or `--library` it prints what it saw, and leaves the page alone.
 */
import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { comparison, type Row } from './comparison.ts'
import { faults } from './faults.ts'
import { libraries } from './libraries.ts'
import { pageOf } from './page.ts'

process.exitCode = await main()

async function main(): Promise<number> {
  const wanted = options()
  if (typeof wanted === 'string') {
    process.stderr.write(`${wanted}\n`)
    return 64
  }
  if (wanted.list) {
    for (const { id, title } of faults) process.stdout.write(`${id.padEnd(16)}${title}\n`)
    return 0
  }
  const rows = await comparison(wanted, (line) => process.stderr.write(`${line}\n`))
  if (wanted.json) process.stdout.write(`${JSON.stringify(rows, null, 2)}\n`)
  if (wanted.faults.length === faults.length && wanted.libraries.length === libraries.length) {
    writeFileSync(fileURLToPath(new URL('../docs/compare.md', import.meta.url)), pageOf(rows))
  }
  return rows.every(isKeptByUs) ? 0 : 1
}

function isKeptByUs({ library, seen }: Row): boolean {
  return library.name !== 'holdfast' || seen === undefined || seen.isKept
}

function options() {
  try {
    const { values } = parseArgs({
      options: {
        only: { type: 'string', multiple: true, default: [] },
        library: { type: 'string', multiple: true, default: [] },
        json: { type: 'boolean', default: false },
        list: { type: 'boolean', default: false },
      },
    })
    const ids = faults.map(({ id }) => id)
    const names = [...new Set(libraries.map(({ name }) => name))]
    const strange = values.only.find((id) => !ids.includes(id))
    if (strange !== undefined) return `Expected --only to be one of ${ids.join(', ')}, got ${strange}.`
    const unknown = values.library.find((name) => !names.includes(name))
    if (unknown !== undefined) return `Expected --library to be one of ${names.join(', ')}, got ${unknown}.`
    return {
      faults: faults.filter(({ id }) => values.only.length === 0 || values.only.includes(id)),
      libraries: libraries.filter(({ name }) => values.library.length === 0 || values.library.includes(name)),
      json: values.json,
      list: values.list,
    }
  } catch (error) {
    return (error as Error).message
  }
}
