import type { KeyRange } from './messages.ts'

/**
 * Names of the keys in etcd, readable in `etcdctl get --prefix holdfast/`:
 *
 *     holdfast/meta                       layout, and what fences are counted from
 *     holdfast/tickets/<key>/<id>         a ticket that holds or waits, or the tombstone of one
 *     holdfast/tickets/<key>/!<id>        a lock-delay
 *
 * A slash or percent sign in a key is written as in a URL, so no key is the beginning of another one's tickets.
 */
export class RoomNames {
  readonly meta: string
  /** All tickets of all rooms. */
  readonly tickets: Required<KeyRange>

  constructor(prefix: string) {
    this.meta = `${prefix}meta`
    this.tickets = { key: `${prefix}tickets/`, end: `${prefix}tickets0` }
  }

  room(key: string): Required<KeyRange> {
    const name = this.tickets.key + escaped(key)
    // The character after the slash: everything that begins with `name/` lies in between.
    return { key: `${name}/`, end: `${name}0` }
  }

  ticket(key: string, id: string): string {
    return `${this.tickets.key}${escaped(key)}/${escaped(id)}`
  }

  closing(key: string, id: string): string {
    return `${this.tickets.key}${escaped(key)}/!${escaped(id)}`
  }

  /** Where rooms begin whose key begins with `prefix`. */
  from(prefix: string): string {
    return this.tickets.key + escaped(prefix)
  }

  /** What a name stands for; the id of a lock-delay begins with an exclamation mark. */
  parse(name: string): { readonly key: string; readonly id: string } {
    const slash = name.lastIndexOf('/')
    return {
      key: unescaped(name.slice(this.tickets.key.length, slash)),
      id: name[slash + 1] === '!' ? `!${unescaped(name.slice(slash + 2))}` : unescaped(name.slice(slash + 1)),
    }
  }
}

function escaped(text: string): string {
  return /[%/!]/.test(text) ? text.replaceAll(/[%/!]/g, (character) => ESCAPES[character] ?? '') : text
}

function unescaped(text: string): string {
  return text.includes('%') ? text.replaceAll(/%2[1F5]/g, (code) => PLAIN[code] ?? '') : text
}

const ESCAPES: Readonly<Record<string, string>> = { '%': '%25', '/': '%2F', '!': '%21' }
const PLAIN: Readonly<Record<string, string>> = { '%25': '%', '%2F': '/', '%21': '!' }
