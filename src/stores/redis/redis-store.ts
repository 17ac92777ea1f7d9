import { readOnlyStore } from '../../base/read-only.ts'
import type { Store } from '../../contract/store.ts'
import { InvalidArgumentError } from '../../errors.ts'
import { ClusterServers } from './cluster/servers.ts'
import { serverScripts } from './scripts.ts'
import type { ClusterLink, RedisLink } from './server/client-link.ts'
import { RoomNames } from './server/room-names.ts'
import { RoomRequests } from './server/room-requests.ts'
import { SingleServer } from './server/single-server.ts'

export interface RedisStoreSettings {
  readonly prefix: string
  readonly replicas: number
  readonly readOnly?: boolean | undefined
  /** See {@link RoomRequestOptions}. Default: 8. */
  readonly leastGroup?: number | undefined
}

/** The rooms of one Redis server, or of a Redis Cluster. */
export class RedisStore extends RoomRequests implements Store {
  readonly name = 'redis'

  constructor(
    link: RedisLink | ClusterLink,
    { prefix, replicas, readOnly, leastGroup = 8 }: RedisStoreSettings,
  ) {
    const names = new RoomNames(link.keyPrefix + prefix)
    // A grant that replicas must have needs the confirmation of the waiter, because the message does not wait for the
    // replicas.
    // With replicas, the second half would wait for them only once the first has.
    const options = { grantsByMessage: replicas === 0, leastGroup, sendsInHalves: replicas === 0 }
    if ('seeds' in link) {
      checkClusterPrefix(names.prefix)
      super(new ClusterServers(link, { names, replicas, readOnly }), names, options)
    } else
      super(new SingleServer(link, { names, replicas, readOnly, scripts: serverScripts }), names, options)
  }
}

/**
 * The servers read the text between the first braces, and the whole name if that text is empty. Then the keys of a
 * script would be in many slots.
 */
function checkClusterPrefix(start: string): void {
  if (!/^[^{]*\{\}/.test(start)) return
  throw new InvalidArgumentError(
    `Expected \`prefix\` to have no {} before other braces on a cluster, got ${JSON.stringify(start)}.`,
  )
}

/** The store over a link, or a view of it for those who only look. */
export function storeOf(link: RedisLink | ClusterLink, settings: RedisStoreSettings): Store {
  const store = new RedisStore(link, settings)
  return settings.readOnly === true ? readOnlyStore(store) : store
}
