import type { Finding } from '../../base/diagnosis.ts'
import { factsOf, findingsOf } from './server/doctor-server.ts'
import { linksOf } from './server/links-of.ts'
import { newClient } from './server/new-client.ts'
import { checkUrl } from './server/server-url.ts'

/** What is to be said of the server that a `redis://` URL names, beyond what the store itself notices. */
export async function diagnoseRedis(url: string): Promise<readonly Finding[]> {
  checkUrl(url)
  const facts = await factsOf(linksOf(await newClient(url))(), 'alone')
  // That it cannot be reached was noticed by the store.
  return 'problem' in facts ? [] : findingsOf(facts)
}
