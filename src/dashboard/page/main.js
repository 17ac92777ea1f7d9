import { Connection } from './connection.js'
import { contentionView } from './contention-view.js'
import { setText } from './elements.js'
import { jobsView } from './jobs-view.js'
import { keyView } from './key-view.js'
import { keysView } from './keys-view.js'
import { leadersView } from './leaders-view.js'
import { addressOf, placeIn } from './places.js'
import { sessionView } from './session-view.js'
import { clockTime, setServerTime, startTicking } from './time.js'

const VIEWS = {
  keys: keysView,
  contention: contentionView,
  leaders: leadersView,
  jobs: jobsView,
  key: keyView,
}
const main = document.querySelector('#main')
const banner = document.querySelector('#banner')
const pill = document.querySelector('#pill')
const title = document.querySelector('#title')
const links = [...document.querySelectorAll('nav a')]

let shown

const connection = new Connection({
  onView(view) {
    setServerTime(view.now)
    showSite(view.site)
    showStore(view.store)
    shown.update(view)
  },
  onLost() {
    showState('lost', 'no connection', 'The dashboard does not answer. What is shown is what was seen last.')
  },
  onRefused(message) {
    showState('lost', 'refused', message)
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
  /** Asks for something else of the same view, which stays as it is. */
  const go = (changes) => {
    Object.assign(place, changes)
    history.replaceState(null, '', addressOf(place))
    connection.ask(new URLSearchParams(shown.query()))
  }
  shown = VIEWS[place.view]({ place, go, say })
  main.replaceChildren(shown.node)
  for (const link of links) {
    const isHere = link.hash === addressOf({ view: place.view === 'key' ? 'keys' : place.view })
    if (isHere) link.setAttribute('aria-current', 'page')
    else link.removeAttribute('aria-current')
  }
  connection.ask(new URLSearchParams(shown.query()))
}

function say(text) {
  setText(document.querySelector('#said'), text)
}

function showSite({ title: text, hasJobs }) {
  setText(title, text)
  if (document.title !== text) document.title = text
  document.querySelector('nav a[href="#/jobs"]').hidden = !hasJobs
}

function showStore(store) {
  if (store.tag === 'present') return showState('live', 'live', '')
  const since = `The store is away since ${clockTime(store.sinceAt)}. What is shown is what was seen last.`
  showState('away', 'store away', `${since} ${store.message}`)
}

function showState(state, text, message) {
  pill.dataset.state = state
  setText(pill, text)
  setText(banner, message)
  document.body.dataset.state = state
}

addEventListener('hashchange', () => {
  // It asks about what was shown before.
  document.querySelector('dialog')?.close()
  arrive()
  scrollTo(0, 0)
  // What had the focus is gone with the view before.
  main.focus({ preventScroll: true })
})
addEventListener('keydown', (event) => {
  const isTyping = event.target.closest('input, select, textarea, dialog')
  if (event.key !== '/' || isTyping || event.ctrlKey || event.metaKey || event.altKey) return
  const search = document.querySelector('#search')
  if (search === null) return
  event.preventDefault()
  search.focus()
})
document.querySelector('#skip').addEventListener('click', () => main.focus())

startTicking()
arrive()
