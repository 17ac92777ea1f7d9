import { AsyncLocalStorage } from 'node:async_hooks'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import type { Socket } from 'node:net'

/**
 * Hands over each client socket that comes into being because of `work`, also later, until the returned function is called.
 *
 * The library that speaks gRPC gives nobody its socket before it is connected. If a machine is switched off, the operating
 * system goes on trying for two minutes, and the process could not end for so long.
 */
export function findSockets(work: () => void, onSocket: (socket: Socket) => void): () => void {
  const finder: Finder = { onSocket, isOver: false }
  finders += 1
  if (finders === 1) subscribe(CHANNEL, hand)
  finding.run(finder, work)
  return () => {
    if (finder.isOver) return
    finder.isOver = true
    finders -= 1
    if (finders > 0) return
    unsubscribe(CHANNEL, hand)
    // On Node.js 20 and 22 a storage that is in use makes every promise slower.
    finding.disable()
  }
}

interface Finder {
  readonly onSocket: (socket: Socket) => void
  /** What happens on a connection goes on in its context: sockets that others make there later are their own. */
  isOver: boolean
}

const finding = new AsyncLocalStorage<Finder>()
let finders = 0

function hand(message: unknown): void {
  const finder = finding.getStore()
  if (finder?.isOver === false) finder.onSocket((message as { readonly socket: Socket }).socket)
}

const CHANNEL = 'net.client.socket'
