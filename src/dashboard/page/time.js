import { element, setAttribute, setText } from './elements.js'

let offsetMs = 0
let stoppedAt

/** All times are the server's; the browser's clock may differ. */
export function setServerTime(now) {
  offsetMs = now - Date.now()
  stoppedAt = undefined
}

/** Ages and times left stay as they were at `at`, as nobody knows what has happened since. */
export function stopTime(at) {
  stoppedAt = at
}

/** The time that the page shows. */
export function serverNow() {
  return stoppedAt ?? runningClock()
}

/** The server's time, which goes on also while the shown time is stopped. */
export function runningClock() {
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
  const time = then.toLocaleTimeString([], { hourCycle: 'h23' })
  const isToday = then.toDateString() === new Date(serverNow()).toDateString()
  return isToday ? time : `${then.toLocaleDateString('en', { day: 'numeric', month: 'short' })} ${time}`
}

/** Date, time of day and zone, for tooltips. */
export function fullTime(at) {
  return new Date(at).toLocaleString('en', {
    ...{ weekday: 'short', day: 'numeric', month: 'short', year: 'numeric' },
    ...{ hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23', timeZoneName: 'short' },
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
  const [age, time] = parts(node, 'since', () => [element('span'), element('small')])
  age.dataset.since = at
  setText(time, clockTime(second))
  setAttribute(node, 'title', `since ${fullTime(second)}`)
  tickOne(age)
}

/**
 * Shows the time left until `at`, and counts down. `suffix` follows the time; `over` replaces it at the end. `ttlMs` is shown
 * beside it. `lateSinceAt`: the holder has not renewed since then.
 * @param {HTMLElement} node
 * @param {number} at
 * @param {{ suffix?: string, over?: string, ttlMs?: number, lateSinceAt?: number }} [options]
 */
export function showUntil(node, at, { suffix = '', over = 'over', ttlMs, lateSinceAt } = {}) {
  const made = () => [element('span'), element('small'), element('small', { class: 'late' })]
  const [left, ttl, late] = parts(node, 'until', made)
  Object.assign(left.dataset, { until: at, suffix, over })
  setText(ttl, ttlMs === undefined ? '' : `of ${ttlText(ttlMs)}`)
  setAttribute(node, 'data-late', lateSinceAt === undefined ? undefined : 'true')
  if (lateSinceAt === undefined) {
    delete late.dataset.since
    setText(late, '')
  } else Object.assign(late.dataset, { since: lateSinceAt, before: 'not renewing for ' })
  setAttribute(
    node,
    'title',
    lateSinceAt === undefined ? undefined : `not renewed since ${fullTime(lateSinceAt)}`,
  )
  for (const each of [left, late]) tickOne(each)
}

export function showNoTime(node, text = '–') {
  delete node.dataset.shows
  delete node.dataset.late
  node.removeAttribute('title')
  setText(node, text)
}

/** The children of a node that shows a time, made anew where the node has shown something else. */
function parts(node, shows, make) {
  if (node.dataset.shows !== shows) {
    node.dataset.shows = shows
    node.replaceChildren(...make().flatMap((part, index) => (index === 0 ? [part] : [' ', part])))
  }
  return [...node.children]
}

/** `30s`, `1m 30s`, `1d`, as people write a ttl. */
export function ttlText(ttlMs) {
  return age(ttlMs)
    .replace('.0s', 's')
    .replace(/ 0+[smh]$/, '')
}

function tickOne(node) {
  const { since, until, suffix, over, before = '' } = node.dataset
  if (since !== undefined) setText(node, `${before}${steady(serverNow() - Number(since))}`)
  if (until === undefined) return
  const leftMs = Number(until) - serverNow()
  setText(node, leftMs <= 0 ? over : `${steady(leftMs)}${suffix}`)
}

/** Whole seconds, as tenths would only flicker. */
function steady(durationMs) {
  if (durationMs < 1000) return '<1s'
  return durationMs < 60_000 ? `${Math.floor(durationMs / 1000)}s` : age(durationMs)
}

export function startTicking() {
  setInterval(() => {
    if (document.hidden || stoppedAt !== undefined) return
    for (const node of document.querySelectorAll('[data-since], [data-until]')) tickOne(node)
  }, 500)
}
