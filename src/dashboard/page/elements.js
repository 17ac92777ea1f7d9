/**
 * Makes all elements of the page from tags and text. No markup is ever parsed, so keys and owners cannot inject any.
 */
export function element(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children)
}

export function drawn(tag, properties = {}, ...children) {
  return filled(document.createElementNS('http://www.w3.org/2000/svg', tag), properties, children)
}

function filled(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === false) continue
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value)
    else node.setAttribute(name, value === true ? '' : value)
  }
  node.append(...children)
  return node
}

/** Writes only a text that differs, so that a selection or a screen reader is not disturbed. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text
}

export function setAttribute(node, name, value) {
  if (value === undefined) node.removeAttribute(name)
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value)
}

/**
 * Shows foreign text. It cannot change the direction of the text beside it, and invisible characters are shown escaped.
 */
export function setStrange(node, text) {
  if (node.dataset.strange === text) return
  node.dataset.strange = text
  if (text === '') return node.replaceChildren()
  const parts = text.split(UNSEEN)
  const nodes = parts.map((part, index) => (index % 2 === 0 ? part : element('i', {}, escaped(part))))
  node.replaceChildren(element('bdi', {}, ...nodes))
}

/** The same for a text of several lines. */
export function setLines(node, text) {
  if (node.dataset.strange === text) return
  node.dataset.strange = text
  const lines = text.split('\n').map((line) => strange('span', {}, line))
  node.replaceChildren(...lines.flatMap((line, index) => (index === 0 ? [line] : ['\n', line])))
}

export function strange(tag, properties, text) {
  const node = element(tag, properties)
  setStrange(node, text)
  return node
}

/** The same as plain text, for drawings and labels, which cannot hold elements. */
export function visible(text) {
  return text
    .split(UNSEEN)
    .map((part, index) => (index % 2 === 0 ? part : escaped(part)))
    .join('')
}

/** As `UNPRINTABLE` on the command line. */
const UNSEEN =
  /((?! |(?<=\p{Extended_Pictographic})[\ufe0e\ufe0f]|(?<=[\d#*])\ufe0f\u20e3|(?<=\p{Unified_Ideograph})[\u{e0100}-\u{e01ef}])[\p{Cc}\p{Cf}\p{Cs}\p{Z}\p{Default_Ignorable_Code_Point}\u2800])/u

function escaped(character) {
  const code = character.codePointAt(0).toString(16)
  return code.length < 3 ? `\\x${code.padStart(2, '0')}` : `\\u{${code}}`
}

/**
 * Makes the children of a node those of the items, in their order, and keeps the ones that are there already. The focused
 * element keeps the focus, also when it is moved.
 */
export function reconcile(parent, items, keyOf, make) {
  const before = parent.made ?? new Map()
  const { activeElement } = document
  const focused =
    activeElement instanceof HTMLElement && parent.contains(activeElement) ? activeElement : null
  parent.made = new Map()
  for (const item of items) {
    const key = keyOf(item)
    if (parent.made.has(key)) continue
    const made = before.get(key) ?? make(item)
    before.delete(key)
    parent.made.set(key, made)
    made.update(item)
  }
  // Removed first, as otherwise every later node would have to be moved over them.
  for (const { node } of before.values()) node.remove()
  let place = parent.firstChild
  for (const { node } of parent.made.values()) {
    if (node === place) place = place.nextSibling
    else parent.insertBefore(node, place)
  }
  if (focused?.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true })
}
