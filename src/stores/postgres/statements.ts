import { inSchema } from '../../postgres/migrations.ts'
import { scripts } from './sql/scripts.generated.ts'

/** One for each verb. Every parameter is a text with a cast, whatever types a client would choose. */
export interface PostgresStatements {
  readonly acquire: string
  readonly renew: string
  /** Asks about groups of waiters. */
  readonly renewGroups: string
  /** Asks about waiters for one key one by one, and makes them a group. */
  readonly joinGroup: string
  readonly release: string
  readonly evict: string
  readonly inspect: string
  /** Shows one room, without a look at any other. */
  readonly peek: string
  readonly sweep: string
  /** Which of some keys have a room that one session has kept locked for a while. */
  readonly taken: string
}

/**
 * The statement that a session that listens to an inbox runs beside LISTEN. An inbox has no characters that would have
 * to be quoted.
 */
export function presenceOf(inbox: string): string {
  return scripts.presence.replace('{inbox}', inbox)
}

export function statementsFor(schema: string): PostgresStatements {
  return {
    acquire: call('lock_acquire', [
      'text[]',
      'text[]',
      ...numbers(7),
      'text[]',
      'text',
      'boolean',
      'boolean',
    ]),
    renew: call('lock_renew', ['text[]', 'text[]', ...numbers(4), 'text', 'boolean', 'boolean']),
    renewGroups: call('lock_renew_groups', ['text[]', 'text[]', ...numbers(2), 'text', 'boolean', 'boolean']),
    joinGroup: call('lock_join_group', [
      'text',
      'text',
      'text[]',
      ...Array<string>(4).fill('double precision'),
      'text',
      'boolean',
      'boolean',
    ]),
    release: call('lock_release', ['text[]', 'text[]', 'boolean[]', 'text', 'boolean']),
    evict: call('lock_evict', ['text', 'text', 'text', 'boolean', 'text', 'boolean']),
    inspect: inspectOf(scripts.page),
    peek: inspectOf('select ($1::text) collate "C" as key'),
    sweep: call('lock_sweep', ['integer']),
    taken: scripts.taken,
  }

  function inspectOf(keys: string): string {
    return inSchema(
      scripts.inspect.replace('{keys}', () => keys),
      schema,
    )
  }

  function call(name: string, types: readonly string[]): string {
    const parameters = types.map((type, index) => `$${index + 1}::text::${type}`)
    return inSchema(`select "{schema}".${name}(${parameters.join(', ')})::text as answer`, schema)
  }
}

function numbers(count: number): string[] {
  return Array<string>(count).fill('double precision[]')
}
