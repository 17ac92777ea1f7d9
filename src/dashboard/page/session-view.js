import { post } from './connection.js'
import { element, setText } from './elements.js'

/** Asks for the token, once for each browser. */
export function sessionView({ onOpen }) {
  const token = element('input', {
    type: 'password',
    id: 'token',
    autocomplete: 'current-password',
    required: true,
  })
  const problem = element('p', { role: 'alert', class: 'problem' })
  const form = element(
    'form',
    { class: 'session', onsubmit: (event) => void open(event) },
    element('h2', {}, 'Token'),
    element('p', {}, 'Enter the token that the dashboard was started with.'),
    element('label', { for: 'token' }, 'Token'),
    token,
    problem,
    element('div', { class: 'buttons' }, element('button', { type: 'submit' }, 'Open')),
  )

  async function open(event) {
    event.preventDefault()
    try {
      await post('api/session', { token: token.value })
      onOpen()
    } catch (error) {
      setText(problem, /** @type {Error} */ (error).message)
      token.select()
    }
  }

  return { node: form, focus: () => token.focus() }
}
