/**
 * One stream of views. It is closed while the page is hidden, and opened again after it broke. Where the token is missing it
 * calls `onLocked`. Where no stream comes through it polls. `onConnecting`: nothing comes for now.
 */
export class Connection {
  #handlers
  #query
  #source
  #retry
  #silence
  /** Rises with each new question; the answer to an older one is ignored. */
  #turn = 0
  /** `false` once a proxy turned out to let no messages through: then the page polls. */
  #canListen = true
  /** Whether any stream has brought a message. Then a silent one is broken, and no proxy is to blame. */
  #hasListened = false

  constructor(handlers) {
    this.#handlers = handlers
    document.addEventListener('visibilitychange', () => {
      if (!document.hidden) return this.#open()
      this.#close()
      // When the page is shown again, the network may be another one, and the first answer may take long.
      if (this.#query !== undefined) this.#handlers.onConnecting()
    })
  }

  /** Sets the query of the stream from now on. */
  ask(query) {
    this.#query = query
    this.#close()
    this.#open()
  }

  #close() {
    this.#turn += 1
    clearTimeout(this.#retry)
    clearTimeout(this.#silence)
    this.#source?.close()
    this.#source = undefined
  }

  #open() {
    if (document.hidden || this.#source !== undefined || this.#query === undefined) return
    if (!this.#canListen) return void this.#findOut()
    this.#turn += 1
    const source = new EventSource(`api/live?${this.#query}`)
    this.#source = source
    this.#expect()
    source.onmessage = ({ data }) => {
      if (source !== this.#source) return
      this.#expect()
      this.#hasListened = true
      this.#handlers.onView(JSON.parse(data))
    }
    source.onerror = () => {
      if (source !== this.#source) return
      // EventSource reconnects by itself after a broken connection, but not after an answer that is no stream.
      if (source.readyState !== EventSource.CLOSED) return this.#handlers.onLost()
      this.#close()
      void this.#findOut()
    }
  }

  /** Polls after a silence: a half-open connection looks open for hours, and some proxies buffer a stream until its end. */
  #expect() {
    clearTimeout(this.#silence)
    this.#silence = setTimeout(() => {
      this.#canListen = this.#hasListened
      this.#close()
      this.#handlers.onConnecting()
      void this.#findOut()
    }, SILENT_MS)
  }

  async #findOut() {
    this.#turn += 1
    const turn = this.#turn
    const signal = AbortSignal.timeout(SILENT_MS)
    const answer = await fetch(`api/view?${this.#query}`, { signal }).catch(() => undefined)
    const content = await answer?.json().catch(() => undefined)
    if (turn !== this.#turn) return
    if (answer?.status === 401) {
      // Ask no more until the token was entered: another answer would replace the form while it is filled in.
      this.#query = undefined
      return this.#handlers.onLocked()
    }
    // Before the answer is shown, as that may fail.
    clearTimeout(this.#retry)
    this.#retry = setTimeout(() => this.#open(), answer?.status === 403 ? AFTER_REFUSAL_MS : 2000)
    // There are too many streams, or a proxy lets none through.
    if (answer?.ok && content !== undefined) this.#handlers.onView(content)
    else if (answer !== undefined && answer.status >= 400 && answer.status < 500)
      this.#handlers.onRefused(content?.message ?? `The dashboard answered with the status ${answer.status}.`)
    else this.#handlers.onLost()
  }
}

/** A login may be renewed elsewhere, or what decides may be restarting. */
const AFTER_REFUSAL_MS = 30_000
/** Even with very many keys there is a look every few seconds. */
const SILENT_MS = 20_000

export async function post(place, body) {
  const answer = await fetch(place, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  }).catch(() => undefined)
  if (answer === undefined)
    throw new Error('The dashboard does not answer. Nobody knows whether it was done.')
  const content = await answer.json().catch(() => ({}))
  if (!answer.ok) throw new Error(content.message ?? `The dashboard answered ${answer.status}.`)
  return content
}
