export type {
  PgQueryable,
  PostgresJsQueryable,
  SqlClient,
  SqlExecutor,
  SqlRow,
} from '../postgres/executor.ts'
