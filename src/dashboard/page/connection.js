/**
 * One stream of views. It is closed while nobody can see the page, opened again after it broke, and where the token is
 * missing says so. Without a stream it asks from time to time.
 */
export class Connection {
  #handlers
  #query
  #source
  #retry
  #silence
  /** Where something in between lets no message through, asking is all that is left. */
  #canListen = true

  constructor(handlers) {
    this.#handlers = handlers
    document.addEventListener('visibilitychange', () => {
      if (document.hidden) this.#close()
      else this.#open()
    })
  }

  /** What to be told from now on. */
  ask(query) {
    this.#query = query
    this.#close()
    this.#open()
  }

  #close() {
    clearTimeout(this.#retry)
    clearTimeout(this.#silence)
    this.#source?.close()
    this.#source = undefined
  }

  #open() {
    if (document.hidden || this.#source !== undefined || this.#query === undefined) return
    if (!this.#canListen) return void this.#findOut()
    const source = new EventSource(`api/live?${this.#query}`)
    this.#source = source
    this.#expect({ isFirst: true })
    source.onmessage = ({ data }) => {
      if (source !== this.#source) return
      this.#expect()
      this.#handlers.onView(JSON.parse(data))
    }
    source.onerror = () => {
      if (source !== this.#source) return
      // It tries again by itself where the connection broke, but not after an answer that is none.
      if (source.readyState !== EventSource.CLOSED) return this.#handlers.onLost()
      this.#close()
      void this.#findOut()
    }
  }

  /** A connection whose other end is gone may look open for hours, and some proxies let nothing through before its end. */
  #expect({ isFirst = false } = {}) {
    clearTimeout(this.#silence)
    this.#silence = setTimeout(() => {
      this.#canListen = !isFirst
      this.#close()
      void this.#findOut()
    }, SILENT_MS)
  }

  async #findOut() {
    const query = this.#query
    const signal = AbortSignal.timeout(SILENT_MS)
    const answer = await fetch(`api/view?${query}`, { signal }).catch(() => undefined)
    if (query !== this.#query || this.#source !== undefined) return
    if (answer?.status === 401) {
      // Not again before somebody has given the token: that would take away what is being typed.
      this.#query = undefined
      return this.#handlers.onLocked()
    }
    if (answer?.status === 403) {
      const { message } = await answer.json().catch(() => ({}))
      return this.#handlers.onRefused(message ?? 'The dashboard refuses to answer.')
    }
    // Too many have a stream, or something in between lets none through.
    const view = answer?.ok ? await answer.json().catch(() => undefined) : undefined
    if (query !== this.#query || this.#source !== undefined) return
    if (view === undefined) this.#handlers.onLost()
    else this.#handlers.onView(view)
    this.#retry = setTimeout(() => this.#open(), 2000)
  }
}

/** Also with very many keys there is a look every few seconds. */
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
