import { messageOf } from '../../../base/thrown.ts'
import { StoreError } from '../../../errors.ts'
import type { ServerAddress } from '../server/client-link.ts'
import { addressOf } from './map.ts'

/** How to go on after a server of a cluster has refused a request. */
export type Refusal =
  /** Another server has the slot. */
  | { readonly tag: 'moved'; readonly slot: number; readonly to: ServerAddress }
  /** Another server is about to have the slot, and has the keys of the request. */
  | { readonly tag: 'ask'; readonly to: ServerAddress }
  /** Some of the keys are here, and some are on another server. */
  | { readonly tag: 'moving' }
  /** The cluster is down. */
  | { readonly tag: 'down' }
  /** The error does not concern clusters. */
  | { readonly tag: 'failed' }

export function refusalOf(error: unknown): Refusal {
  if (error instanceof StoreError) return { tag: 'failed' }
  const message = messageOf(error)
  const [, code, slot, address] = /^-?(MOVED|ASK) (\d+) (\S*:\d+)/.exec(message) ?? []
  if (address !== undefined) {
    const to = addressOf(address)
    return code === 'ASK' ? { tag: 'ask', to } : { tag: 'moved', slot: Number(slot), to }
  }
  if (/^-?TRYAGAIN\b|access a non local key/.test(message)) return { tag: 'moving' }
  return { tag: /^-?CLUSTERDOWN\b|while the cluster is down/.test(message) ? 'down' : 'failed' }
}
