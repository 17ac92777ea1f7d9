import type { ServerResponse } from 'node:http'
import type { RoomWatch } from '../room-watch/room-watch.ts'
import { GUARDS } from './replies.ts'

/**
 * Those who look at this moment. There is one watch for all of them, and none when nobody looks. A client that reads slower
 * than it is told gets the next message when it has taken the last one, so that nothing piles up.
 */
export class Live {
  readonly #startWatch: (onSnapshot: () => void) => RoomWatch
  readonly #clients: Set<Client> = new Set()
  readonly #impatient: Set<() => void> = new Set()
  #watch: RoomWatch | undefined
  #ending: NodeJS.Timeout | undefined

  constructor(startWatch: (onSnapshot: () => void) => RoomWatch) {
    this.#startWatch = startWatch
  }

  get isFull(): boolean {
    return this.#clients.size >= MOST_CLIENTS
  }

  /** Runs for a while after the last one has left, so that what it remembers is there when a page is loaded again. */
  get watch(): RoomWatch {
    this.#watch ??= this.#startWatch(() => this.#tellAll())
    clearTimeout(this.#ending)
    this.#ending = undefined
    if (this.#clients.size === 0) {
      this.#ending = setTimeout(() => this.#stopWatch(), LINGER_MS)
      this.#ending.unref()
    }
    return this.#watch
  }

  /** Resolves with the watch when it has looked, or says that the store is away, which it does within seconds. */
  async looked(): Promise<RoomWatch> {
    const { watch } = this
    const { snapshot } = watch
    const isKnown = snapshot.store.tag === 'away' || Date.now() - snapshot.at < FRESH_MS
    if (isKnown) return watch
    await new Promise<void>((resolve) => this.#impatient.add(resolve))
    return watch
  }

  /** Tells a client what it has asked for after every look, until it leaves. The response's head is not sent yet. */
  join(response: ServerResponse, question: Question): void {
    // Gone while it was asked who it is: nothing would tell of its leaving any more.
    if (isGone(response)) return
    response.writeHead(200, {
      ...GUARDS,
      'Content-Type': 'text/event-stream; charset=utf-8',
      // Not to be compressed by what stands in between: that waits until there is enough of it.
      'Cache-Control': 'no-store, no-transform',
      'X-Accel-Buffering': 'no',
    })
    response.write('retry: 2000\n\n')
    const client: Client = { response, question, blockedAt: undefined }
    this.#clients.add(client)
    response.once('close', () => this.#leave(client))
    response.on('error', () => {})
    const { watch } = this
    const isThere = watch.snapshot.at > 0 || watch.snapshot.store.tag === 'away'
    if (isThere) tell(client, messageOf(question, watch))
  }

  close(): void {
    for (const { response } of this.#clients) response.destroy()
    this.#clients.clear()
    clearTimeout(this.#ending)
    this.#stopWatch()
  }

  #leave(client: Client): void {
    this.#clients.delete(client)
    if (this.#clients.size > 0 || this.#watch === undefined) return
    // Begins the countdown.
    void this.watch
  }

  #stopWatch(): void {
    this.#watch?.stop()
    this.#watch = undefined
    this.#tellImpatient()
  }

  #tellImpatient(): void {
    for (const done of this.#impatient) done()
    this.#impatient.clear()
  }

  #tellAll(): void {
    this.#tellImpatient()
    const watch = this.#watch
    if (watch === undefined) return
    // Most of them look at the same, and of thousands of keys that takes a while to put together.
    const messages = new Map<string, string>()
    for (const client of this.#clients) {
      const { question } = client
      if (isBlocked(client)) continue
      const message = messages.get(question.name) ?? messageOf(question, watch)
      messages.set(question.name, message)
      tell(client, message)
    }
  }
}

/** What somebody wants to see. */
export interface Question {
  /** The same for all who are given the same. */
  readonly name: string
  readonly view: (watch: RoomWatch) => object
}

interface Client {
  readonly response: ServerResponse
  readonly question: Question
  /** Since when it has not taken what it was sent. */
  blockedAt: number | undefined
}

/** Of HTTP/2 it is the stream that says so. */
function isGone(response: ServerResponse & { readonly stream?: { readonly destroyed: boolean } }): boolean {
  return response.destroyed || response.stream?.destroyed === true
}

function messageOf({ view }: Question, watch: RoomWatch): string {
  return `data: ${JSON.stringify(view(watch))}\n\n`
}

/** Whether it has not taken the last message yet. Who never does is let go. */
function isBlocked({ response, blockedAt }: Client): boolean {
  if (blockedAt === undefined) return false
  if (performance.now() - blockedAt > LONGEST_BLOCK_MS) response.destroy()
  return true
}

function tell(client: Client, message: string): void {
  if (client.response.write(message)) return
  client.blockedAt = performance.now()
  client.response.once('drain', () => {
    client.blockedAt = undefined
  })
}

/** What all of them together may not have read yet is then some tens of MB at worst. */
const MOST_CLIENTS = 250
const LINGER_MS = 60_000
const FRESH_MS = 2000
const LONGEST_BLOCK_MS = 30_000
