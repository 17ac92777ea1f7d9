// No framework: 2,000 lines without a build step run from their own files alone, which the strict Content-Security-Policy
// demands, and bring no foreign code into an operator's browser.
import { Connection } from './connection.js'
import { contentionView } from './contention-view.js'
import { setText } from './elements.js'
import { jobView } from './job-view.js'
import { jobsView } from './jobs-view.js'
import { keyView } from './key-view.js'
import { listenToKeys, showHelp } from './keyboard.js'
import { keysView } from './keys-view.js'
import { leadersView } from './leaders-view.js'
import { lossesView } from './losses-view.js'
import { partitionsView } from './partitions-view.js'
import { addressOf, placeIn } from './places.js'
import { processesView } from './processes-view.js'
import { sessionView } from './session-view.js'
import { clockTime, setServerTime, startTicking, stopTime, zoneName } from './time.js'

/** @import { SiteJson, ViewJson } from '../view-json.ts' */

const VIEWS = {
  keys: keysView,
  contention: contentionView,
  leaders: leadersView,
  losses: lossesView,
  processes: processesView,
  partitions: partitionsView,
  jobs: jobsView,
  key: keyView,
  job: jobView,
}
/** The list that a page belongs to. */
const PARENTS = { key: 'keys', job: 'jobs' }
/** Each list as it was shown last, with its filter. */
const lastPlaces = new Map()
const main = part('#main')
const banner = part('#banner')
const pill = part('#pill')
const title = part('#title')
/** @type {NodeListOf<HTMLAnchorElement>} */
const links = document.querySelectorAll('nav a')

let shown
/** The place of the open view. */
let current
let said
/** When the store was looked at last, as far as the page knows. */
let seenAt = 0

const connection = new Connection({
  onView(view) {
    setServerTime(view.now)
    if (view.store.tag === 'away') stopTime(view.at)
    seenAt = view.at
    showSite(view.site)
    showStore(view)
    shown.update(view)
  },
  onConnecting() {
    stopTime(seenAt)
    showState('lost', 'connecting', lastSeen(seenAt))
  },
  onLost() {
    stopTime(seenAt)
    showState('lost', 'no connection', `The dashboard does not answer. ${lastSeen(seenAt)}`)
  },
  onRefused(message) {
    stopTime(seenAt)
    showState('lost', 'refused', `${message} ${lastSeen(seenAt)}`)
  },
  onLocked() {
    showState('locked', 'locked', '')
    const session = sessionView({ onOpen: () => arrive() })
    main.replaceChildren(session.node)
    session.focus()
  },
})

function arrive() {
  const place = placeIn(location.hash)
  current = place
  /** Changes the query of the open view without opening it anew. */
  const go = (changes) => {
    Object.assign(place, changes)
    // A field asks a moment after the last letter. By then, a link may have led elsewhere.
    if (place !== current) return
    history.replaceState(null, '', addressOf(place))
    connection.ask(new URLSearchParams(shown.query()))
  }
  const list = PARENTS[place.view]
  if (list === undefined) lastPlaces.set(place.view, place)
  shown = VIEWS[place.view]({ place, go, say, list: lastPlaces.get(list) ?? { view: list } })
  main.replaceChildren(shown.node)
  for (const link of links) {
    const isHere = link.hash === addressOf({ view: PARENTS[place.view] ?? place.view })
    if (isHere) link.setAttribute('aria-current', 'page')
    else link.removeAttribute('aria-current')
  }
  connection.ask(new URLSearchParams(shown.query()))
}

/** A visible sign that something was done. Screen readers hear it, too. */
function say(text) {
  clearTimeout(said)
  setText(part('#said'), text)
  said = setTimeout(() => setText(part('#said'), ''), SAID_MS)
}

/** An element that index.html has from the beginning. */
function part(selector) {
  /** @type {HTMLElement | null} */
  const found = document.querySelector(selector)
  if (found === null) throw new Error(`Expected index.html to have ${selector}, got none.`)
  return found
}

/** @param {SiteJson} site */
function showSite({ title: text, hasJobs }) {
  setText(title, text)
  if (document.title !== text) document.title = text
  part('nav a[href="#/jobs"]').hidden = !hasJobs
}

/** @param {ViewJson} view */
function showStore({ store, at, caveats }) {
  if (store.tag === 'present') return showState('live', 'live', caveats.join(' '))
  const since = `The store is away since ${clockTime(store.sinceAt)}.`
  showState('away', 'store away', `${since} ${lastSeen(at)} ${store.message}`)
}

function lastSeen(at) {
  return at === 0 ? 'Nothing was seen yet.' : `The page shows the state of ${clockTime(at)}.`
}

function showState(state, text, message) {
  pill.dataset.state = state
  setText(pill, text)
  setText(banner, message)
  document.body.dataset.state = state
}

addEventListener('hashchange', () => {
  // An open dialog is about the view before.
  document.querySelector('dialog')?.close()
  arrive()
  scrollTo(0, 0)
  // The focused element is gone with the view before.
  main.focus({ preventScroll: true })
})
part('#keys').addEventListener('click', showHelp)
part('#skip').addEventListener('click', () => main.focus())

const SAID_MS = 10_000
setText(part('#zone'), zoneName())
startTicking()
arrive()
listenToKeys({ view: () => shown })
