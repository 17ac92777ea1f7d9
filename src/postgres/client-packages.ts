import type pg from 'pg'
import type postgres from 'postgres'
import { absent, defaultOf } from '../base/packages.ts'

/** The package pg; `undefined` where it is not installed. */
export async function packagePg(): Promise<typeof pg | undefined> {
  try {
    return defaultOf(await import('pg'))
  } catch (error) {
    return absent(error)
  }
}

/** The function of the package postgres; `undefined` where it is not installed. */
export async function packagePostgres(): Promise<typeof postgres | undefined> {
  try {
    return defaultOf(await import('postgres'))
  } catch (error) {
    return absent(error)
  }
}
