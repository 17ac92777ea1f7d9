import type { KeyRange } from '../grpc/messages.ts'

/**
 * The names of the keys in etcd, readable in `etcdctl get --prefix holdfast/`:
 *
 *     holdfast/meta                       layout, and what fences are counted from
 *     holdfast/tickets/<key> <id>         a ticket that holds or waits, or the tombstone of one
 *     holdfast/tickets/<key> !<id>        a lock-delay
 *
 * The characters up to the exclamation mark, and the percent sign, are written as in a URL when they are part of a key. So a key
 * sorts before all keys that begin with it, and no key is the beginning of another key's tickets.
 */
export class KeyNames {
  readonly meta: string
  /** All tickets of all rooms. */
  readonly tickets: Required<KeyRange>

  constructor(prefix: string) {
    this.meta = `${prefix}meta`
    this.tickets = { key: `${prefix}tickets/`, end: `${prefix}tickets0` }
  }

  room(key: string): Required<KeyRange> {
    const name = this.tickets.key + escaped(key)
    // The exclamation mark follows the space: everything that begins with `name ` lies in between.
    return { key: `${name} `, end: `${name}!` }
  }

  ticket(key: string, id: string): string {
    return `${this.tickets.key}${escaped(key)} ${escaped(id)}`
  }

  lockDelay(key: string, id: string): string {
    return `${this.tickets.key}${escaped(key)} !${escaped(id)}`
  }

  /** Where the rooms start whose key begins with `prefix`. */
  from(prefix: string): string {
    return this.tickets.key + escaped(prefix)
  }

  /** The key and the id in a name. The id of a lock-delay begins with an exclamation mark. */
  parse(name: string): { readonly key: string; readonly id: string } {
    const space = name.lastIndexOf(' ')
    // Without a space it is the key of another program.
    const end = space < this.tickets.key.length ? name.length : space
    const id = name.slice(end + 1)
    return {
      key: unescaped(name.slice(this.tickets.key.length, end)),
      id: id.startsWith('!') ? `!${unescaped(id.slice(1))}` : unescaped(id),
    }
  }
}

function escaped(text: string): string {
  return SPECIAL.test(text) ? text.replaceAll(ALL_SPECIAL, code) : text
}

function code(character: string): string {
  return `%${character.charCodeAt(0).toString(16).padStart(2, '0')}`
}

function unescaped(text: string): string {
  if (!text.includes('%')) return text
  return text.replaceAll(/%([0-9a-f]{2})/g, (_, digits: string) =>
    String.fromCharCode(Number.parseInt(digits, 16)),
  )
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what it is about.
const SPECIAL = /[\u0000-\u0021%]/
const ALL_SPECIAL = new RegExp(SPECIAL, 'g')
