import { setText } from './elements.js'

let offsetMs = 0

/** All times are the server's; the browser's clock may differ. */
export function setServerTime(now) {
  offsetMs = now - Date.now()
}

export function serverNow() {
  return Date.now() + offsetMs
}

/** 950ms, 3.2s, 4m 05s, 2h 10m, 3d 4h: as on the command line. */
export function age(durationMs) {
  if (durationMs < 999.5) return `${Math.max(0, Math.round(durationMs))}ms`
  if (durationMs < 60_000) return `${(Math.floor(Math.max(1000, durationMs) / 100) / 10).toFixed(1)}s`
  const minutes = Math.floor(durationMs / 60_000)
  if (minutes < 60) return `${minutes}m ${padded(Math.floor(durationMs / 1000) % 60)}s`
  const hours = Math.floor(minutes / 60)
  return hours < 24 ? `${hours}h ${padded(minutes % 60)}m` : `${Math.floor(hours / 24)}d ${hours % 24}h`
}

function padded(number) {
  return String(number).padStart(2, '0')
}

export function clockTime(at) {
  return new Date(at).toLocaleTimeString([], { hour12: false })
}

/** Shows how long ago `at` was, and goes on counting. */
export function showSince(node, at) {
  node.dataset.since = at
  tickOne(node)
}

/** Shows the time left until `at`, and counts down. `suffix` follows the time; `over` replaces it at the end. */
export function showUntil(node, at, { suffix = '', over = 'over' } = {}) {
  node.dataset.until = at
  node.dataset.suffix = suffix
  node.dataset.over = over
  tickOne(node)
}

export function showNoTime(node, text = '–') {
  delete node.dataset.since
  delete node.dataset.until
  delete node.dataset.low
  setText(node, text)
}

function tickOne(node) {
  const { since, until, suffix, over } = node.dataset
  if (since !== undefined) setText(node, steady(serverNow() - Number(since)))
  if (until === undefined) return
  const leftMs = Number(until) - serverNow()
  node.dataset.low = leftMs < LOW_MS && over === 'over'
  setText(node, leftMs <= 0 ? over : `${steady(leftMs)}${suffix}`)
}

/** Whole seconds, as tenths would only flicker. */
function steady(durationMs) {
  if (durationMs < 1000) return '<1s'
  return durationMs < 60_000 ? `${Math.floor(durationMs / 1000)}s` : age(durationMs)
}

export function startTicking() {
  setInterval(() => {
    if (document.hidden) return
    for (const node of document.querySelectorAll('[data-since], [data-until]')) tickOne(node)
  }, 500)
}

const LOW_MS = 3000
