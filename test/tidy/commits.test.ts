import { spawnSync } from 'node:child_process'
import { expect, test } from 'vitest'
import { root } from './project.ts'

/** Older commits were written before the rule. */
const BASE = 'f17715f57c6efd0bcbe57364a3c9657150fecaa3'

test('the subject of each commit is one short sentence about the product', () => {
  expect(subjectsSince(BASE).filter((subject) => wrongWith(subject) !== undefined)).toEqual([])
})

test('a subject that is long, has several ideas or tells of the work is found', () => {
  expect(wrongWith('Renew the leases of a process in one request')).toBeUndefined()
  expect(wrongWith('Keep a session of PostgreSQL for each process')).toBeUndefined()
  expect(wrongWith(`Renew ${'a '.repeat(40)}`)).toBe('long')
  expect(wrongWith('Renew leases; release them')).toBe('several ideas')
  expect(wrongWith('Say what the last reviews found')).toBe('about the work')
  expect(wrongWith('Say what is new in this session')).toBe('about the work')
  expect(wrongWith('Mend what issue 13 names')).toBe('about the work')
})

test('without git, or in a clone that does not reach the base, nothing is checked', () => {
  expect(subjectsSince('0000000000000000000000000000000000000000')).toEqual([])
  expect(subjectsSince(BASE, { command: 'no-such-git' })).toEqual([])
})

function wrongWith(subject: string): string | undefined {
  if (subject.length > 72) return 'long'
  if (subject.includes(';')) return 'several ideas'
  if (/\b(reviews?|reviewers?|this session|wip)\b|\bissue #?\d|^(fixup|squash)!/i.test(subject))
    return 'about the work'
  return undefined
}

function subjectsSince(base: string, { command = 'git' } = {}): string[] {
  const args = ['log', '--no-merges', '--format=%s', `${base}..HEAD`]
  const { status, stdout } = spawnSync(command, args, { cwd: root, encoding: 'utf8' })
  return status === 0 ? stdout.split('\n').filter(Boolean) : []
}
