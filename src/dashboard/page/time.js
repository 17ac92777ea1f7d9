import { element, setAttribute, setText } from './elements.js'

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

/** The time of day in the browser's zone, with the date where it is not today. */
export function clockTime(at) {
  const then = new Date(at)
  const time = then.toLocaleTimeString([], { hour12: false })
  const isToday = then.toDateString() === new Date(serverNow()).toDateString()
  return isToday ? time : `${then.toLocaleDateString('en', { day: 'numeric', month: 'short' })} ${time}`
}

/** Date, time of day and zone, for tooltips. */
export function fullTime(at) {
  return new Date(at).toLocaleString('en', {
    ...{ weekday: 'short', day: 'numeric', month: 'short', year: 'numeric' },
    ...{ hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false, timeZoneName: 'short' },
  })
}

/** The zone of all times of day on the page: `GMT+1`. */
export function zoneName() {
  const parts = new Intl.DateTimeFormat('en', { timeZoneName: 'short' }).formatToParts(new Date())
  return parts.find(({ type }) => type === 'timeZoneName')?.value ?? ''
}

/** Shows a time of day, with the whole date in the tooltip. */
export function showTime(node, at) {
  setText(node, clockTime(at))
  setAttribute(node, 'title', fullTime(at))
}

/** Shows how long ago `at` was, and goes on counting, with the time of day beside it. */
export function showSince(node, at) {
  // The store counts durations, so the instant moves by some milliseconds from one look to the next.
  const second = Math.round(at / 1000) * 1000
  node.dataset.since = at
  if (node.dataset.second !== String(second)) {
    node.dataset.second = second
    node.replaceChildren(element('span'), ' ', element('small', {}, clockTime(second)))
    setAttribute(node, 'title', `since ${fullTime(second)}`)
  }
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
  delete node.dataset.second
  node.removeAttribute('title')
  delete node.dataset.until
  delete node.dataset.low
  setText(node, text)
}

function tickOne(node) {
  const { since, until, suffix, over } = node.dataset
  if (since !== undefined) setText(node.firstElementChild, steady(serverNow() - Number(since)))
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
