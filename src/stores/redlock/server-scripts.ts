import { randomBytes } from 'node:crypto'
import type { Ticket } from '../../contract/store.ts'
import { StoreError } from '../../errors.ts'
import { storeErrorOf, unexpectedReply } from '../redis/server/failures.ts'
import { RoomNames } from '../redis/server/room-names.ts'
import type { Script } from '../redis/server/scripts.ts'
import { claimScript, identityScript, initScript, votesScript, withdrawScript } from './scripts.ts'
import { identityOf, REPLICA, type ServerIdentity } from './server-identity.ts'
import type { SharedLink } from './shared-link.ts'

export interface Claim {
  /** Undefined: the fence that the server gave with its vote, for a lease without fences. */
  readonly fence: bigint | undefined
  readonly mode: 'claim' | 'propagate'
  /** The memory that the server has had for `maxTtl` by our own clock: its name and the run id. Empty if there is none. */
  readonly memory: string
}

export type ClaimAnswer =
  /** `serverUs`: the time of the server when it accepted. */
  | { readonly tag: 'accepted'; readonly serverUs: number }
  /** The fence has to be above this one. Readers share a room, and another reader may have claimed as much. */
  | { readonly tag: 'too-low'; readonly above: bigint }
  /** The fence is ahead of the server's time by `maxTtl` or more. The server gave the ticket the fence `given`. */
  | { readonly tag: 'too-far'; readonly given: bigint }
  | { readonly tag: 'gone' }
  /** The server may have lost a vote for another ticket; see rule 1 in quorum.ts. */
  | { readonly tag: 'forgetful' }

/** A vote in a room of one server. */
export interface VoteView {
  /** The ticket that has the vote. */
  readonly id: string
  /** When the vote ends by the clock of the server, as text. If this text is the same, the vote is the same. */
  readonly endsAt: string
}

/** Whether Holdfast has used a server before; see init.lua. */
export interface FirstLook {
  /** `known`: it has the note since when it remembers everything. `used`: it has no note, but other keys of Holdfast. */
  readonly tag: 'new' | 'known' | 'used'
  /** The run id of the server's process. Undefined if the user may not ask for `INFO`. */
  readonly runId: string | undefined
  /** For how long it has forgotten nothing, by its note. 0 without one. */
  readonly ageMs: number
}

/** The scripts that a server runs only as one of several, beside those of a single server. */
export class ServerScripts {
  readonly #link: SharedLink
  readonly #names: RoomNames
  /** The key of the note since when the server remembers everything; see identity.lua. */
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
    const args = ['', '3', this.#names.fence, this.#names.room(ticket.key), this.#since, String(fence ?? '-')]
    // A server to which a fence is only propagated has begun the minimum hold with its vote.
    const minHoldMs = mode === 'claim' ? Math.ceil(ticket.minHoldMs) : 0
    args.push(String(this.#maxTtlMs), String(minHoldMs), ticket.id, mode === 'claim' ? 'c' : 's', memory)
    return this.#run(claimScript, args, ticket.key).then(claimAnswer)
  }

  async votes(key: string): Promise<readonly VoteView[]> {
    const text = await this.#run(votesScript, ['', '1', this.#names.room(key)], key)
    if (text === '') return []
    return text.split('\n', MOST_RIVALS).map((line) => {
      const space = line.indexOf(' ')
      return { id: line.slice(space + 1), endsAt: line.slice(0, space) }
    })
  }

  /**
   * Gives back the vote that ends at `endsAt`, and puts the ticket at the end of the queue. False: the ticket keeps its vote,
   * because nobody else waits there, or because it has another vote by now.
   */
  async requeue(ticket: Ticket, endsAt: string): Promise<boolean> {
    return (await this.#takeBack(ticket, 'q', endsAt)) !== 'h'
  }

  /** Takes the ticket out of the room at once, although it has a minimum hold: the hold has not begun. */
  async withdraw(ticket: Ticket): Promise<void> {
    await this.#takeBack(ticket, 'r')
  }

  identity(): Promise<ServerIdentity> {
    return identityOf((script, args) => this.#link.run(script, args), {
      script: identityScript,
      key: this.#since,
      newName: randomBytes(9).toString('base64url'),
      settings: () => this.#link.send('CONFIG', ['GET', 'append*']),
    }).catch((error: unknown) => this.#raise(error))
  }

  /** `write`: a server that has never been used gets its note, as if it had been in use for years. */
  async init({ write }: { readonly write: boolean }): Promise<FirstLook> {
    const newName = randomBytes(9).toString('base64url')
    const text = await this.#run(initScript, [
      '',
      '2',
      this.#since,
      this.#names.fence,
      newName,
      write ? 'w' : 'l',
    ])
    if (text === 'replica') throw new StoreError('store-refused', REPLICA)
    const [, letter = '', runId, ageMs] = /^([nkf]) (\S{1,100}) (\d{1,16})$/.exec(text) ?? []
    const tag = FIRST_LOOKS[letter]
    if (tag === undefined) throw unexpectedReply(text)
    return { tag, runId: runId === '-' ? undefined : runId, ageMs: Number(ageMs) }
  }

  #takeBack(ticket: Ticket, mode: 'q' | 'r', endsAt = ''): Promise<string> {
    const rooms = [this.#names.fence, this.#names.room(ticket.key)]
    const args = ['', '2', ...rooms, mode, String(Math.ceil(ticket.patienceMs)), ticket.id, endsAt]
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

const FIRST_LOOKS: Readonly<Record<string, FirstLook['tag']>> = { n: 'new', k: 'known', f: 'used' }

/** So many votes of one room are read. More readers than that do not split the votes. */
const MOST_RIVALS = 10_000

function claimAnswer(text: string): ClaimAnswer {
  if (!/^(?:[abf]\d{1,16}|[gy!])$/.test(text) && text[0] !== '?') throw unexpectedReply(text)
  switch (text[0]) {
    case 'a':
      return { tag: 'accepted', serverUs: Number(text.slice(1)) }
    case 'b':
      return { tag: 'too-low', above: BigInt(text.slice(1)) }
    case 'f':
      return { tag: 'too-far', given: BigInt(text.slice(1)) }
    case 'y':
      return { tag: 'forgetful' }
    default:
      return { tag: 'gone' }
  }
}
