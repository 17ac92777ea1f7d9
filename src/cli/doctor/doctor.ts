import { type Diagnosis, diagnose, type Finding } from '../../index.ts'
import type { ParsedArguments } from '../arguments.ts'
import { EXIT } from '../exit-codes.ts'
import { placeOf } from '../store-option.ts'
import { type Paint, paintFor, print, roomOnScreen, type Style } from '../terminal.ts'
import { json, plain, width, wrap } from '../text.ts'

export async function examine(given: ParsedArguments): Promise<number> {
  given.refuseWords()
  // What the stores warn of is among the findings, in better words.
  process.removeAllListeners('warning')
  const { url } = await placeOf(given)
  const diagnosis = await diagnose(url, { readOnly: given.flag('read-only') })
  if (given.flag('json')) print(json(diagnosis))
  else for (const line of pageOf(diagnosis, paintFor(process.stdout))) print(line)
  return diagnosis.verdict === 'problem' ? EXIT.failed : EXIT.ok
}

const STYLES: Readonly<Record<Finding['verdict'], Style>> = { ok: 'green', warning: 'yellow', problem: 'red' }

function pageOf({ findings }: Diagnosis, paint: Paint): readonly string[] {
  const checks = Math.max(...findings.map(({ check }) => width(check)))
  const lines: string[] = []
  let server: string | undefined
  for (const finding of findings) {
    const { check, where, verdict, text } = finding
    if (where !== server && where !== undefined) lines.push('', paint('bold', plain(where)))
    else if (where !== server) lines.push('')
    server = where
    const head = `${paint(STYLES[verdict], verdict.padEnd(LONGEST_VERDICT))}  ${check.padEnd(checks)}`
    const margin = LONGEST_VERDICT + 2 + checks + 2
    lines.push(...beside(head, plain(text), margin))
  }
  return [...lines, '', summary(findings)]
}

/** The text behind its head, or below it where there is not enough room for that. */
function beside(head: string, text: string, margin: number): readonly string[] {
  // A file has no end, but whoever reads it has a screen.
  const room = Math.min(roomOnScreen(), WIDEST)
  if (room - margin >= NARROWEST_TEXT) {
    const [first = '', ...rest] = wrap(text, room - margin)
    return [`${head}  ${first}`, ...rest.map((line) => ' '.repeat(margin) + line)]
  }
  return [head.trimEnd(), ...wrap(text, Math.max(NARROWEST_TEXT, room) - 2).map((line) => `  ${line}`)]
}

function summary(findings: readonly Finding[]): string {
  const count = (verdict: Finding['verdict']): number =>
    findings.filter((finding) => finding.verdict === verdict).length
  const parts = (['problem', 'warning'] as const).flatMap((verdict) => {
    const found = count(verdict)
    return found === 0 ? [] : [`${found} ${verdict}${found === 1 ? '' : 's'}`]
  })
  return parts.length === 0 ? 'All is well.' : `${parts.join(', ')}, ${count('ok')} ok.`
}

const LONGEST_VERDICT = 'problem'.length
const NARROWEST_TEXT = 36
const WIDEST = 120
