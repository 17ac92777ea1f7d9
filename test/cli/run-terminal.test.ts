import { afterEach, beforeEach, expect, test } from 'vitest'
import { Shell } from './holdfast-process.ts'
import { openSqlite, type TestStore } from './stores.ts'

let store: TestStore
let shell: Shell
beforeEach(async () => {
  store = await openSqlite()
  shell = new Shell({ HOLDFAST_STORE: store.url })
})
afterEach(async () => {
  await shell.close()
  await store[Symbol.asyncDispose]()
})

test('a command in the foreground reads what a person types', async () => {
  const ran = shell.terminal(`eval "$HOLDFAST run key -- head -n 1"`, 'for the command\n')
  expect(await ran.exit).toBe(0)
  // The terminal echoes the text, and the command prints it.
  expect(ran.stdout.match(/for the command/g)).toHaveLength(2)
})

test('a command in the background reads nothing, and the shell gets what a person types', async () => {
  const background = `eval "$HOLDFAST run key -- sh -c 'cat; echo read to the end'" & wait $!`
  const ran = shell.terminal(`${background}; read line; echo "the shell got: $line"`, 'for the shell\n')
  expect(await ran.exit).toBe(0)
  expect(ran.stdout).toContain('read to the end')
  expect(ran.stdout).toContain('the shell got: for the shell')
})

test('a command in the background reads from a pipe', async () => {
  const background = `echo piped | eval "$HOLDFAST run key -- cat" & wait $!`
  const ran = shell.terminal(background, '')
  expect(await ran.exit).toBe(0)
  expect(ran.stdout).toContain('piped')
})
