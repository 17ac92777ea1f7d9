import { shortened } from '../base/text.ts'
import type { InspectedHolder, InspectedWaiter, Owner } from '../index.ts'
import type { HoldRecord, KeySample } from '../room-watch/hold-record.ts'
import { lateMsOf, type RenewalFacts, roundTtlMs } from '../room-watch/renewal-facts.ts'
import { modeOf } from '../room-watch/ticket-facts.ts'
import type { HolderJson, HoldJson, OwnerJson, SampleJson, WaiterJson } from './view-json.ts'

export function holderJson(
  holder: InspectedHolder,
  { longest, renewals }: { readonly longest: number; readonly renewals: RenewalFacts | undefined },
): HolderJson {
  const { id, fence, state, heldMs, remainingMs, owner } = holder
  return {
    id,
    fence: String(fence),
    mode: modeOf(holder),
    state,
    heldMs,
    remainingMs,
    ttlMs: renewals?.isKnown === true ? roundTtlMs(renewals.ttlMs) : undefined,
    lateMs: lateMsOf(holder, renewals),
    value: cut(owner.value, longest),
    owner: ownerJson(owner, longest),
  }
}

export function waiterJson(waiter: InspectedWaiter, longest: number): WaiterJson {
  const { id, waitedMs, owner } = waiter
  return { id, mode: modeOf(waiter), waitedMs, owner: ownerJson(owner, longest) }
}

export function holdJson(hold: HoldRecord, longest: number): HoldJson {
  const { id, fence, fromAt, untilAt, end, reason, ttlMs, renewedAt } = hold
  return {
    id,
    fence: String(fence),
    mode: modeOf(hold),
    fromAt,
    untilAt,
    end,
    reason,
    ttlMs: ttlMs === undefined ? undefined : roundTtlMs(ttlMs),
    renewedAt,
    owner: ownerJson(hold.owner, longest),
  }
}

export function sampleJson({ at, holding, waiting }: KeySample): SampleJson {
  return [at, holding, waiting]
}

/** By this text, owners are found and sorted: people look for the label first. */
export function ownerText({ host, pid, label, text }: Owner | OwnerJson): string {
  return text ?? `${label ?? ''} ${host ?? '?'}:${String(pid ?? '?')}`.trimStart()
}

export function ownerJson(owner: Owner, longest: number): OwnerJson {
  const { host, pid, label, text } = owner
  if (text !== undefined || host === undefined || pid === undefined)
    return { text: cut(ownerText(owner), longest) }
  return { host: cut(host, longest), pid, label: cut(label, longest) }
}

function cut(text: string | undefined, longest: number): string | undefined {
  return text === undefined ? undefined : shortened(text, longest)
}
