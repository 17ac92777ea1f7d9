import { type Finding, unseenServer } from '../../base/diagnosis.ts'
import type { DriverOptions } from '../driver.ts'
import { settingsOf } from './options.ts'
import { factsOf, findingsOf } from './server/doctor-server.ts'
import { linksOf } from './server/links-of.ts'
import { newClient } from './server/new-client.ts'
import { RoomNames } from './server/room-names.ts'
import { checkUrl, parametersIn, urlOptionsIn } from './server/server-url.ts'

/** Findings about the server of a `redis://` URL, beyond what opening the store shows. */
export async function diagnoseRedis(url: string, { readOnly }: DriverOptions): Promise<readonly Finding[]> {
  checkUrl(url)
  const names = new RoomNames(settingsOf(urlOptionsIn(parametersIn(new URL(url).search))).prefix)
  const link = linksOf(await newClient(url))()
  const facts = await factsOf(link, { setting: 'alone', names, fenceOf: () => names.fence, readOnly })
  return 'problem' in facts ? [unseenServer(facts.problem)] : findingsOf(facts)
}
