/** What the command of this lease finds in `HOLDFAST_HOLDS`: the holds of all runs that it is under. */
export function holdsWith({ key, id }: OuterHold): string {
  return JSON.stringify([...outerHolds(), { key, id }])
}

interface OuterHold {
  readonly key: string
  readonly id: string
}

/** The holds of the runs that this process is under, from the outermost on. */
export function outerHolds(): readonly OuterHold[] {
  try {
    const holds: unknown = JSON.parse(process.env['HOLDFAST_HOLDS'] ?? '[]')
    return Array.isArray(holds) ? holds.filter(isHold) : []
  } catch {
    // Somebody else has set it.
    return []
  }
}

function isHold(value: unknown): value is OuterHold {
  const { key, id } = (value ?? {}) as { readonly [K in keyof OuterHold]?: unknown }
  return typeof key === 'string' && typeof id === 'string'
}
