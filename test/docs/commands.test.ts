// The commands that pages and alerts name are those that there are.
import { readdirSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { COMMANDS } from '../../src/cli/commands.ts'

const root = new URL('../../', import.meta.url)
const pages = ['README.md', 'src/observe/prometheus/alert-rules.yml'].concat(
  readdirSync(new URL('docs', root))
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name}`),
)

test.each(pages)('%s names no command and no action that does not exist', (page) => {
  const text = readFileSync(new URL(page, root), 'utf8')
  const named = [...text.matchAll(/(?:^|`)(?:npx )?holdfast ([a-z]+)(?: ([a-z]+)\b(?![-:=./]))?/gm)]
  const unknown = named.filter(([, name, action]) => {
    // `holdfast advisory session` is the name of a connection.
    if (name === 'advisory') return false
    const command = COMMANDS.find((each) => each.name === name)
    if (command === undefined) return true
    return action !== undefined && ACTED.has(command.name) && !command.firstWords?.includes(action)
  })
  expect(unknown.map(([whole]) => whole)).toEqual([])
})

/** The commands whose first word is one of their actions, and not a key. */
const ACTED: ReadonlySet<string> = new Set(['jobs', 'schedules', 'help', 'completion'])
