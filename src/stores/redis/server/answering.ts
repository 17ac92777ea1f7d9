import { opened } from '../../../base/opened.ts'
import { look } from '../../../base/read-only.ts'
import type { Store } from '../../../contract/store.ts'
import { StoreError } from '../../../errors.ts'

export interface AnsweringOptions {
  readonly readOnly?: boolean | undefined
  /** What is wrong with a server that is silent, if it can be found out. Asked after a second of silence. */
  readonly whySilent?: () => Promise<string | undefined>
}

/** Resolves with the store once it has answered something. If it does not, closes it and rejects. */
export function answering<S extends Pick<Store, 'release' | 'inspect' | 'close'>>(
  store: S,
  { readOnly = false, whySilent = async () => undefined }: AnsweringOptions = {},
): Promise<S> {
  return opened(store, async () => {
    const timers: NodeJS.Timeout[] = []
    const silence = new Promise<never>((_, reject) => {
      const fail = (what: string) => reject(new StoreError('store-unavailable', what))
      const suspect = () => void whySilent().then((what) => what !== undefined && fail(what))
      timers.push(setTimeout(suspect, SUSPICION_MS), setTimeout(fail, ANSWER_LIMIT_MS, SILENT))
    })
    try {
      // Needs what every request needs, finds nobody, and changes nothing.
      const answer = readOnly
        ? lookTwice(store)
        : store.release({ key: 'is anybody there', id: '?', cancel: false })
      await Promise.race([answer, silence])
    } finally {
      for (const timer of timers) clearTimeout(timer)
    }
  })
}

/**
 * ioredis 5 sends the first command before it knows that its password was refused. A server whose default user needs none then
 * answers as to that user, and the second command is refused.
 */
async function lookTwice(store: Pick<Store, 'inspect'>): Promise<void> {
  await look(store)
  await look(store)
}

/** A server that hangs still accepts connections: its kernel does. So there is a limit for the first answer, too. */
const ANSWER_LIMIT_MS = 5000
const SUSPICION_MS = 1000
const SILENT =
  'The Redis server did not answer within 5 s. Check that it runs and is not stopped, whether it speaks TLS (rediss:) at that port or not (redis:), and the network in between.'
