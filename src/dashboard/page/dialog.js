import { element, setText, strange } from './elements.js'

/**
 * Asks before something is changed. The facts say what; `reason` asks why, and `typed` asks to type a word first, so that nobody
 * changes many things by one slip.
 * @param {{
 *   title: string,
 *   facts: readonly (readonly [name: string, text: string])[],
 *   warning?: string,
 *   reason?: string,
 *   typed?: string,
 *   action: string,
 *   run: (reason: string, tell: (progress: string) => void) => Promise<string>,
 *   say: (text: string) => void,
 * }} question
 */
export function ask({ title, facts, warning = '', reason, typed, action, run, say }) {
  const why = field('reason', { maxlength: 500, placeholder: 'hangs since the deploy' })
  const word = field('typed', { spellcheck: 'false' })
  const problem = element('p', { role: 'alert', class: 'problem' })
  const progress = element('p', { role: 'status' })
  const submit = element('button', { type: 'submit', class: 'danger' }, action)
  const cancel = element('button', { type: 'button', onclick: () => dialog.close() }, 'Cancel')
  const form = element(
    'form',
    { method: 'dialog', onsubmit: (event) => void act(event) },
    element('h2', { id: 'dialog-title' }, title),
    factList(facts),
    ...(warning === '' ? [] : [element('p', {}, warning)]),
    ...(reason === undefined ? [] : [element('label', { for: 'reason' }, reason), why]),
    ...(typed === undefined
      ? []
      : [element('label', { for: 'typed' }, 'Type ', element('code', {}, typed), ' to confirm'), word]),
    problem,
    progress,
    element('div', { class: 'buttons' }, cancel, submit),
  )
  const dialog = element(
    'dialog',
    { 'aria-labelledby': 'dialog-title', onclose: () => dialog.remove() },
    form,
  )

  async function act(event) {
    event.preventDefault()
    if (reason !== undefined && why.value.trim() === '') return why.focus()
    if (typed !== undefined && word.value.trim() !== typed) {
      setText(problem, `Expected ${typed}, got something else.`)
      return word.select()
    }
    setText(problem, '')
    submit.disabled = true
    try {
      const done = await run(why.value, (text) => setText(progress, text))
      dialog.close()
      say(done)
    } catch (error) {
      const { message } = /** @type {Error} */ (error)
      // Esc closes the question, and stops nothing.
      if (!dialog.open) say(`${action} failed. ${message}`)
      setText(problem, message)
      submit.disabled = false
    }
  }

  document.body.append(dialog)
  dialog.showModal()
  const [first = submit] = [...(reason === undefined ? [] : [why]), ...(typed === undefined ? [] : [word])]
  first.focus()
}

function field(id, properties) {
  return element('input', { type: 'text', id, required: true, autocomplete: 'off', ...properties })
}

/** @param {readonly (readonly [name: string, text: string])[]} facts */
export function factList(facts) {
  const rows = facts.map(([name, text]) =>
    element('div', {}, element('dt', {}, name), strange('dd', {}, text)),
  )
  return element('dl', {}, ...rows)
}
