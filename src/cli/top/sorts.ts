/** The columns of `holdfast top` to sort by, in their order on the screen. */
export const SORTS = [
  'key',
  'state',
  'mode',
  'holder',
  'held',
  'left',
  'ttl',
  'fence',
  'waiting',
  'longest',
] as const
export type Sort = (typeof SORTS)[number]
