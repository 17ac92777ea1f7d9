/** How a list is sorted: by the column of this name. A name that the list does not know leaves it in its own order. */
export interface ListOrder {
  readonly sort: string
  readonly isReversed: boolean
}

/** By what a column is sorted. Numbers: largest first. Texts: in code-unit order. */
export type Rank<T> = (row: T) => number | bigint | string | undefined

/** The rows in that order. Rows without a rank come last, whichever way round. Equal ones stay in the list's own order. */
export function ordered<T>(
  rows: readonly T[],
  ranks: Readonly<Record<string, Rank<T>>>,
  { sort, isReversed }: ListOrder,
): readonly T[] {
  const rankOf = Object.hasOwn(ranks, sort) ? ranks[sort] : undefined
  if (rankOf === undefined) return isReversed ? rows.toReversed() : rows
  const sign = isReversed ? -1 : 1
  // Each rank is built once, as a sort compares a row with many others.
  return rows
    .map((row) => ({ row, rank: rankOf(row) }))
    .sort((one, other) => {
      if (one.rank === undefined || other.rank === undefined || one.rank === other.rank)
        return Number(one.rank === undefined) - Number(other.rank === undefined)
      const isFirst =
        typeof one.rank === 'string' ? one.rank < other.rank : one.rank > (other.rank as number | bigint)
      return isFirst ? -sign : sign
    })
    .map(({ row }) => row)
}
