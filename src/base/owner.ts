/** The process of a ticket, for people. Who holds does not depend on it: another program may write anything here. */
export interface Owner {
  /** The name of the machine. */
  readonly host?: string
  /** The process id on that machine. */
  readonly pid?: number
  /** The `label` of its locks. */
  readonly label?: string
  /** The `value` that a leader gave to `campaign`, or a member to the `join` of its group. */
  readonly value?: string
  /** The id of a member of a group. */
  readonly member?: string
  /** The text in the store, if another program wrote it and none of the fields above can be read from it. */
  readonly text?: string
}

/** Tickets of one process have the same owner, so it is parsed once for many events. Nobody may change it. */
export function lastOwner(text: string): Owner {
  if (text !== last.text) last = { text, owner: Object.freeze(parseOwner(text)) }
  return last.owner
}

let last: { readonly text: string; readonly owner: Owner } = { text: '', owner: { text: '' } }

/** `host:pid (label)`, or the text of another program. */
export function ownerName({ host, pid, label, text }: Owner): string {
  return text ?? `${host ?? '?'}:${pid ?? '?'}${label === undefined ? '' : ` (${label})`}`
}

export function parseOwner(text: string): Owner {
  const { host, pid, label, value, member } = parsed(text)
  const owner: Owner = {
    ...(typeof host === 'string' ? { host } : {}),
    ...(typeof pid === 'number' ? { pid } : {}),
    ...(typeof label === 'string' ? { label } : {}),
    ...(typeof value === 'string' ? { value } : {}),
    ...(typeof member === 'string' ? { member } : {}),
  }
  return Object.keys(owner).length === 0 ? { text } : owner
}

/** The owner of a process, with facts of one ticket added. */
export function withFacts(owner: string, facts: Readonly<Record<string, unknown>>): string {
  return JSON.stringify({ ...JSON.parse(owner), ...facts })
}

/** A fact of a ticket that is not for people to see. `undefined`: the ticket has none of this name. */
export function factOf(owner: string, name: string): unknown {
  return parsed(owner)[name]
}

function parsed(text: string): Partial<Record<string, unknown>> {
  if (text.length > LONGEST_OWNER) return {}
  try {
    const facts: unknown = JSON.parse(text)
    return typeof facts === 'object' && facts !== null ? (facts as Record<string, unknown>) : {}
  } catch {
    return {}
  }
}

/**
 * Longer than an owner that Holdfast writes. With a host and a label it has a value, or the result that `once` keeps. JSON may make
 * six characters of one.
 */
export const LONGEST_OWNER = 16_384
