/**
 * One stream of views. It is closed while nobody can see the page, opened again after it broke, and where the token is
 * missing says so.
 */
export class Connection {
  #handlers
  #query
  #source
  #retry

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
    this.#source?.close()
    this.#source = undefined
  }

  #open() {
    if (document.hidden || this.#source !== undefined || this.#query === undefined) return
    const source = new EventSource(`api/live?${this.#query}`)
    this.#source = source
    source.onmessage = ({ data }) => {
      if (source === this.#source) this.#handlers.onView(JSON.parse(data))
    }
    source.onerror = () => {
      if (source !== this.#source) return
      // It tries again by itself where the connection broke, but not after an answer that is none.
      if (source.readyState !== EventSource.CLOSED) return this.#handlers.onLost()
      this.#close()
      void this.#findOut()
    }
  }

  async #findOut() {
    const query = this.#query
    const answer = await fetch(`api/view?${query}`).catch(() => undefined)
    if (query !== this.#query || this.#source !== undefined) return
    if (answer?.status === 401) return this.#handlers.onLocked()
    if (answer?.status === 403) {
      const { message } = await answer.json().catch(() => ({}))
      return this.#handlers.onRefused(message ?? 'The dashboard refuses to answer.')
    }
    this.#handlers.onLost()
    this.#retry = setTimeout(() => this.#open(), 2000)
  }
}

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
