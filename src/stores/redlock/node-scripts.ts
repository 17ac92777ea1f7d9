import { randomBytes } from 'node:crypto'
import type { Ticket } from '../../contract/store.ts'
import { StoreError } from '../../errors.ts'
import { storeErrorOf, unexpectedReply } from '../redis/server/failures.ts'
import { RoomNames } from '../redis/server/room-names.ts'
import type { Script } from '../redis/server/scripts.ts'
import { claimScript, votesScript, identityScript, withdrawScript } from './scripts.ts'
import { identityOf, type ServerIdentity } from './server-identity.ts'
import type { SharedLink } from './shared-link.ts'

export interface Claim {
  readonly fence: bigint
  readonly mode: 'claim' | 'propagate'
  /** What the server is known to have remembered for `maxTtl`, by our own clock. Empty: it is not known. */
  readonly memory: string
}

export type ClaimAnswer =
  /** When, by the clock of the server. */
  | { readonly tag: 'accepted'; readonly serverUs: number }
  /** Readers share a room, so what another one has claimed may be as high: it has to be above this. */
  | { readonly tag: 'too-low'; readonly above: bigint }
  | { readonly tag: 'gone' }
  /** The server has not kept its memory for long enough: it may have forgotten a vote for another ticket. */
  | { readonly tag: 'forgetful' }

/** A ticket that has the vote of one server. It holds the key only with the votes of a quorum. */
export interface Rival {
  readonly id: string
  /** When its vote ends, as text by the clock of the server. If this text is the same, the vote is the same. */
  readonly till: string
}

/** The scripts that a server runs as one of several, beside those of its redis store. */
export class NodeScripts {
  readonly #link: SharedLink
  readonly #names: RoomNames
  /** The key under which the server keeps since when it remembers everything. */
  readonly #since: string
  readonly #maxTtlMs: number

  constructor(link: SharedLink, options: { readonly prefix: string; readonly maxTtlMs: number }) {
    const prefix = link.keyPrefix + options.prefix
    this.#link = link
    this.#names = new RoomNames(prefix)
    this.#since = `${prefix}since`
    this.#maxTtlMs = options.maxTtlMs
  }

  claim(ticket: Ticket, { fence, mode, memory }: Claim): Promise<ClaimAnswer> {
    const args = ['', '3', this.#names.fence, this.#names.room(ticket.key), this.#since, String(fence)]
    // What is only written down has its minimum hold already, from the vote.
    const minHoldMs = mode === 'claim' ? Math.ceil(ticket.minHoldMs) : 0
    args.push(String(this.#maxTtlMs), String(minHoldMs), ticket.id, mode === 'claim' ? 'c' : 's', memory)
    return this.#run(claimScript, args, ticket.key).then(claimAnswer)
  }

  async votes(key: string): Promise<readonly Rival[]> {
    const text = await this.#run(votesScript, ['', '1', this.#names.room(key)], key)
    if (text === '') return []
    return text.split('\n', MOST_RIVALS).map((line) => {
      const space = line.indexOf(' ')
      return { id: line.slice(space + 1), till: line.slice(0, space) }
    })
  }

  /** Whether the ticket waits, behind those who waited already; where nobody does it keeps the vote that ends then. */
  async requeue(ticket: Ticket, till: string): Promise<boolean> {
    return (await this.#yield(ticket, 'q', till)) !== 'h'
  }

  /** Without a minimum hold, which has not begun. */
  async withdraw(ticket: Ticket): Promise<void> {
    await this.#yield(ticket, 'r')
  }

  identity(): Promise<ServerIdentity> {
    return identityOf((script, args) => this.#link.run(script, args), {
      script: identityScript,
      key: this.#since,
      name: randomBytes(9).toString('base64url'),
      settings: () => this.#link.send('CONFIG', ['GET', 'append*']),
    }).catch((error: unknown) => this.#raise(error))
  }

  #yield(ticket: Ticket, mode: 'q' | 'r', till = ''): Promise<string> {
    const rooms = [this.#names.fence, this.#names.room(ticket.key)]
    const args = ['', '2', ...rooms, mode, String(Math.ceil(ticket.patienceMs)), ticket.id, till]
    return this.#run(withdrawScript, args, ticket.key)
  }

  async #run(script: Script, args: string[], key?: string): Promise<string> {
    const reply = await this.#link.run(script, args).catch((error: unknown) => this.#raise(error, key))
    if (typeof reply === 'string') return reply
    throw unexpectedReply(reply)
  }

  #raise(error: unknown, key?: string): never {
    throw error instanceof StoreError ? error : storeErrorOf(this.#link.reasonOf(error), key, 0)
  }
}

/** Of the holders of one room, so many are looked at: more readers than that do not split a vote. */
const MOST_RIVALS = 10_000

function claimAnswer(text: string): ClaimAnswer {
  if (!/^(?:[ab]\d{1,16}|[gy!])$/.test(text) && text[0] !== '?') throw unexpectedReply(text)
  switch (text[0]) {
    case 'a':
      return { tag: 'accepted', serverUs: Number(text.slice(1)) }
    case 'b':
      return { tag: 'too-low', above: BigInt(text.slice(1)) }
    case 'y':
      return { tag: 'forgetful' }
    default:
      return { tag: 'gone' }
  }
}
