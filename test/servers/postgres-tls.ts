import { readFileSync } from 'node:fs'
import type { PostgresServer } from './postgres-server.ts'

/** Restarts the server with TLS. Its certificate is signed by an authority that no client knows. */
export async function enableTls(server: PostgresServer): Promise<void> {
  // The server writes the files itself, because it takes no key that other users may read.
  const copy = (from: string, to: string) => {
    const content = readFileSync(new URL(`etcd-certificates/${from}`, import.meta.url), 'base64')
    // The program reads what it is sent: the server fails if it ends before that.
    return server.sql(
      `copy (select 1) to program 'cat > /dev/null; umask 077; echo ${content} | base64 -d > ${to}'`,
    )
  }
  await copy('member.pem', 'server.crt')
  await copy('member.key', 'server.key')
  await server.sql(`alter system set ssl = 'on'`)
  await server.restart()
}
