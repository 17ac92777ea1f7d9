import { Redis } from 'ioredis'
import type { RedisLink } from '../../../src/stores/redis/server/client-link.ts'
import { ioredisLink } from '../../../src/stores/redis/server/ioredis.ts'
import {
  claimScript,
  identityScript,
  votesScript,
  votingScripts,
  withdrawScript,
} from '../../../src/stores/redlock/scripts.ts'

const scripts = {
  ...votingScripts,
  claim: claimScript,
  votes: votesScript,
  identity: identityScript,
  withdraw: withdrawScript,
}
type ScriptName = keyof typeof scripts

/** The test's action on one request: it waits before the request goes on, or throws instead. */
export type Steering = (script: ScriptName | undefined, args: readonly string[]) => Promise<void> | void

export interface SteeredLink {
  readonly link: RedisLink
  /** Called before a request is sent. */
  onRequest: Steering
  /** Called when the answer has arrived, before it is handed on. */
  onReply: Steering
}

/** A connection to a real server, on which a test holds up the requests and the answers that it chooses. */
export function steeredLink(url: string): SteeredLink {
  const link = ioredisLink(new Redis(url, { lazyConnect: true }))
  const steered: SteeredLink = {
    link: {
      ...link,
      open: (onLost) => {
        const connection = link.open(onLost)
        return {
          reasonOf: (error) => connection.reasonOf(error),
          close: () => connection.close(),
          async send(command, args) {
            const script = nameOf(args[0])
            const waits = steered.onRequest(script, args)
            if (waits !== undefined) await waits
            const answer = await connection.send(command, args)
            await steered.onReply(script, args)
            return answer
          },
        }
      },
    },
    onRequest: () => {},
    onReply: () => {},
  }
  return steered
}

function nameOf(textOrSha: string | undefined): ScriptName | undefined {
  for (const [name, { text, sha }] of Object.entries(scripts)) {
    if (textOrSha === text || textOrSha === sha) return name as ScriptName
  }
  return undefined
}

/** A promise that a test can wait for, and the function that resolves it. */
export function gate(): { readonly opened: Promise<void>; open(): void } {
  let open = (): void => {}
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  return { opened, open: () => open() }
}
