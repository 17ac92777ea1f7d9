import { appendFileSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { FencedRegister, type RegisterEntry } from '../../src/cli/demo/register.ts'

let folder: string
let path: string
let opened: FencedRegister[]
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-register-'))
  path = join(folder, 'register')
  opened = []
})
afterEach(() => {
  for (const register of opened) register.close()
  rmSync(folder, { recursive: true, force: true })
})

test('a write counts until the register has seen a higher fence', () => {
  const [one, other] = [open(), open()]
  expect(one.append(entry({ ticket: 'a', fence: '9', base: 0 }))).toBe(true)
  expect(other.value).toBe(1)
  expect(other.append(entry({ ticket: 'b', fence: '10', what: 'enter' }))).toBe(true)
  expect(one.append(entry({ ticket: 'a', fence: '9', base: 1 }))).toBe(false)
  expect(other.append(entry({ ticket: 'b', fence: '10', base: 1 }))).toBe(true)
  expect(one.value).toBe(2)
})

test('a process that opens the register later sees the same', () => {
  const one = open()
  for (let base = 0; base < 500; base += 1) one.append(entry({ base }))
  expect(open().value).toBe(500)
})

test('an entry that is half written counts as missing, and spoils no later entry', () => {
  const one = open()
  appendFileSync(path, '\n{"worker":1,"ticket":"dead","fence":"99"')
  expect(one.append(entry({ base: 0 }))).toBe(true)
  expect(one.value).toBe(1)
})

function open(): FencedRegister {
  const register = new FencedRegister(path)
  opened.push(register)
  return register
}

let nth = 0
function entry(fields: Partial<RegisterEntry>): RegisterEntry {
  nth += 1
  const base = fields.base ?? 0
  return {
    worker: 1,
    ticket: 'a',
    nth,
    fence: '1',
    what: 'write',
    heldAtUs: 0,
    ...fields,
    base,
    value: base + 1,
  }
}
