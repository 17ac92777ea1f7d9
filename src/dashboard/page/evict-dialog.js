import { post } from './connection.js'
import { element, setText, strange } from './elements.js'
import { counted, ownerText } from './tickets.js'
/** @import { HolderJson, WaiterJson } from '../view-json.ts' */

/**
 * Asks for a reason before anything is evicted: one ticket, or all of the key.
 * @param {{ key: string, say: (text: string) => void, ticket?: HolderJson | WaiterJson, count?: number }} asked
 */
export function askToEvict({ key, ticket, count, say }) {
  const reason = element('input', {
    type: 'text',
    id: 'reason',
    required: true,
    maxlength: 500,
    autocomplete: 'off',
    placeholder: 'hangs since the deploy',
  })
  const problem = element('p', { role: 'alert', class: 'problem' })
  const submit = element('button', { type: 'submit', class: 'danger' }, 'Evict')
  const cancel = element('button', { type: 'button', onclick: () => dialog.close() }, 'Cancel')
  const form = element(
    'form',
    { method: 'dialog', onsubmit: (event) => void evict(event) },
    element('h2', { id: 'evict-title' }, ticket === undefined ? 'Evict everybody?' : 'Evict?'),
    facts({ key, ticket, count }),
    element(
      'p',
      {},
      'The key goes to whoever is next at once. The holder is told, but it may be in the middle of a write: only a check of its fence stops that.',
    ),
    element('label', { for: 'reason' }, 'Reason, which the holder is told'),
    reason,
    problem,
    element('div', { class: 'buttons' }, cancel, submit),
  )
  const dialog = element('dialog', { 'aria-labelledby': 'evict-title', onclose: () => dialog.remove() }, form)

  async function evict(event) {
    event.preventDefault()
    if (reason.value.trim() === '') return reason.focus()
    submit.disabled = true
    try {
      const { evicted } = await post('api/evict', { key, id: ticket?.id, reason: reason.value })
      dialog.close()
      say(
        evicted.length === 0
          ? 'There was nobody to evict any more.'
          : `Evicted: ${counted(evicted.length, 'ticket')}.`,
      )
    } catch (error) {
      setText(problem, /** @type {Error} */ (error).message)
      submit.disabled = false
    }
  }

  document.body.append(dialog)
  dialog.showModal()
  reason.focus()
}

/** @param {{ key: string, ticket: HolderJson | WaiterJson | undefined, count: number | undefined }} asked */
function facts({ key, ticket, count }) {
  const rows = [['Key', key]]
  if (ticket === undefined) rows.push(['Holders and waiters', String(count)])
  else rows.push(['Owner', ownerText(ticket.owner)], ...('fence' in ticket ? [['Fence', ticket.fence]] : []))
  return element(
    'dl',
    {},
    ...rows.map(([name, text]) => element('div', {}, element('dt', {}, name), strange('dd', {}, text))),
  )
}
