import { drawn, element } from './elements.js'

/** A button that copies a text. `textOf` is asked when it is pressed. */
export function copyButton(what, textOf, say) {
  return element(
    'button',
    {
      type: 'button',
      class: 'copy',
      'aria-label': `Copy ${what}`,
      title: `Copy ${what}`,
      onclick: () => void copy(textOf(), what, say),
    },
    drawn(
      'svg',
      { viewBox: '0 0 16 16', width: 13, height: 13, 'aria-hidden': 'true' },
      drawn('path', { d: 'M5.5 5.5h8v8h-8zM10.5 3V2.5h-8v8H3' }),
    ),
  )
}

export async function copy(text, what, say) {
  // Pages over plain HTTP from another machine have no clipboard.
  const isCopied = await navigator.clipboard?.writeText(text).then(
    () => true,
    () => false,
  )
  say(isCopied || copyBySelection(text) ? `Copied ${what}.` : `The browser did not copy ${what}.`)
}

function copyBySelection(text) {
  const { activeElement } = document
  const field = element('textarea', { class: 'aside', readonly: true })
  field.value = text
  const open = document.querySelector('dialog[open]') ?? document.body
  open.append(field)
  field.select()
  const isCopied = document.execCommand('copy')
  field.remove()
  if (activeElement instanceof HTMLElement) activeElement.focus({ preventScroll: true })
  return isCopied
}
