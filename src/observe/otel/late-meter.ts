import { createNoopMeter, type Meter, type MeterProvider, metrics } from '@opentelemetry/api'

/**
 * Begins with the meter of the provider. Without one, begins as soon as a global provider is registered, as the spans do. The API has a
 * proxy for tracers and none for meters: a meter from before counts nothing, for ever. So `onWork` says when to look again.
 */
export function beginWithMeter(
  provider: MeterProvider | undefined,
  begin: (meter: Meter) => () => void,
  onWork: (look: () => void) => () => void,
): () => void {
  if (provider !== undefined) return begin(provider.getMeter('holdfast'))
  const late = new LateMeter(begin)
  late.look()
  if (late.hasBegun) return () => late.stop()
  const stopLooking = onWork(() => {
    late.look()
    if (late.hasBegun) stopLooking()
  })
  return () => {
    stopLooking()
    late.stop()
  }
}

class LateMeter {
  readonly #begin: (meter: Meter) => () => void
  #stop: (() => void) | undefined

  constructor(begin: (meter: Meter) => () => void) {
    this.#begin = begin
  }

  get hasBegun(): boolean {
    return this.#stop !== undefined
  }

  look(): void {
    if (this.hasBegun) return
    const meter = metrics.getMeter('holdfast')
    if (meter !== createNoopMeter()) this.#stop = this.#begin(meter)
  }

  stop(): void {
    this.#stop?.()
  }
}
