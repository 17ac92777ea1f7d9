import { explained } from '../../../base/explained.ts'
import { fieldOf } from '../../../base/thrown.ts'
import type { StoreError } from '../../../errors.ts'

/** Why a look at the jobs has failed, for a person. */
export function lookProblem(error: StoreError, { schema }: { readonly schema: string }): string {
  if (fieldOf(error.cause, 'code') !== UNDEFINED_TABLE) return explained(error)
  return `The schema ${schema} lacks the tables of jobs: jobs.migrate() makes them.`
}

/** The SQLSTATE of PostgreSQL, also where the schema is missing. */
const UNDEFINED_TABLE = '42P01'
