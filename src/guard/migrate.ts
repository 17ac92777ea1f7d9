import { executorOf, type SqlClient } from '../postgres/executor.ts'
import { quoted } from '../postgres/rows.ts'
import { DEFAULT_SCHEMA } from './guard.ts'
import { scripts } from './sql/scripts.generated.ts'

export async function migrateGuard(client: SqlClient, options: { schema?: string } = {}): Promise<void> {
  const schema = quoted('schema', options.schema ?? DEFAULT_SCHEMA)
  await executorOf(client).query(
    `create schema ${schema}; ${scripts.version1.replaceAll('$schema$', () => schema)}`,
  )
}
