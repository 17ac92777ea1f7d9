/** Neighbours that go together; never empty. */
export type Batch<T> = readonly [T, ...T[]]

/** Cuts a list into runs of neighbours that go together, each at most so long. */
export function batchesOf<T>(
  items: readonly T[],
  { same, most }: { readonly same: (one: T, other: T) => boolean; readonly most: number },
): readonly Batch<T>[] {
  const runs: [T, ...T[]][] = []
  let run: [T, ...T[]] | undefined
  for (const item of items) {
    if (run !== undefined && run.length < most && same(run[0], item)) run.push(item)
    else {
      run = [item]
      runs.push(run)
    }
  }
  return runs
}
