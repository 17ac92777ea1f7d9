// Draws the lock worker's state machine into docs/worker.md, from its definition. `--check` writes nothing, and fails where
// the page differs.
//
//   npx tsx scripts/draw-worker-machine.ts [--check] [page]
import { readFileSync, writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { lockWorkerMachine } from '../src/worker/machine/index.ts'

type State = typeof lockWorkerMachine.root

interface Arrow {
  readonly to: State
  readonly label: string
}

const { values, positionals } = parseArgs({ options: { check: { type: 'boolean' } }, allowPositionals: true })
const page = positionals[0] ?? 'docs/worker.md'
const before = readFileSync(page, 'utf8')
const after = before.replace(/^```mermaid\n[\s\S]*?^```$/m, () => `\`\`\`mermaid\n${draw()}\n\`\`\``)

if (!values.check) writeFileSync(page, after)
else if (after !== before) {
  console.error(`${page} shows another machine: run \`npx tsx scripts/draw-worker-machine.ts\` and commit it`)
  process.exitCode = 1
}

function draw(): string {
  return ['stateDiagram-v2', ...indented(contentOf(lockWorkerMachine.root))].join('\n')
}

function contentOf(state: State): string[] {
  const children = Object.values(state.states)
  const boxes = children.map(boxOf)
  if (state.type === 'parallel') return boxes.flatMap((box, index) => (index === 0 ? box : ['--', ...box]))
  const initial = state.initial.target?.map(({ key }) => `[*] --> ${key}`) ?? []
  return [...initial, ...boxes.flat(), ...children.flatMap((child) => arrowLines(child, state))]
}

function boxOf(state: State): string[] {
  const { key, description } = state
  if (Object.keys(state.states).length > 0) return [`state ${key} {`, ...indented(contentOf(state)), '}']
  // A state without a text of its own is drawn where an arrow names it.
  return description === undefined ? [] : [`state "${key}: ${description}" as ${key}`]
}

/** The transitions of a state, one line for each target. An arrow that leaves a box ends at its edge: Mermaid has no other. */
function arrowLines(state: State, box: State): string[] {
  const final = state.type === 'final' ? [`${state.key} --> [*]`] : []
  const labels = new Map<string, string[]>()
  const add = (target: string, label: string) => labels.set(target, [...(labels.get(target) ?? []), label])
  for (const { to, label } of arrowsOf(state)) add(to.parent === box ? to.key : '[*]', label)
  for (const { to, label } of descendantsOf(state).flatMap(arrowsOf)) {
    if (to.parent === box) add(to.key, label)
  }
  return [...Array.from(labels, ([target, all]) => `${state.key} --> ${target}${labelText(all)}`), ...final]
}

/** An event with an unguarded transition to the target needs no guarded one to the same target. */
function labelText(labels: readonly string[]): string {
  const events = labels.filter(
    (label) => (label !== '' && !labels.includes(label.replace(/ \[.*/, ''))) || !label.includes(' ['),
  )
  const text = [...new Set(events)].filter(Boolean).join(', ')
  return text === '' ? '' : ` : ${text}`
}

/** Without transitions that only run an action or enter the same state again. */
function arrowsOf(state: State): Arrow[] {
  const events = [...state.transitions].flatMap(([event, all]) => all.map((one) => ({ event, ...one })))
  const always = (state.always ?? []).map((one) => ({ event: '', ...one }))
  return [...events, ...always].flatMap(({ event, guard, target = [] }) =>
    target.filter((to) => to !== state).map((to) => ({ to, label: labelOf(event, guard as Guard, state) })),
  )
}

type Guard = string | { readonly type: string } | undefined

function labelOf(event: string, guard: Guard, state: State): string {
  const name = typeof guard === 'object' ? guard.type : guard
  return [nameOf(event, state), name === undefined ? '' : `[${name}]`].filter(Boolean).join(' ')
}

function nameOf(event: string, state: State): string {
  const [source] = state.invoke
  if (event.startsWith('xstate.done.')) return `${source?.src} succeeds`
  if (event.startsWith('xstate.error.')) return `${source?.src} fails`
  if (event.startsWith('xstate.after.')) return `after ${event.split('.')[2]}`
  return event
}

function descendantsOf(state: State): State[] {
  return Object.values(state.states).flatMap((child) => [child, ...descendantsOf(child)])
}

function indented(lines: readonly string[]): string[] {
  return lines.map((line) => `  ${line}`)
}
