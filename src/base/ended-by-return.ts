/**
 * Has `return()` end the generator also while a `next()` is pending. A generator would finish that `next()` first, perhaps never.
 * `end`: ends what the generator waits for.
 */
export function endedByReturn<T>(
  generator: AsyncGenerator<T, void, void>,
  end: () => void,
): AsyncGenerator<T, void, void> {
  const finish = generator.return.bind(generator)
  generator.return = (value) => {
    end()
    return finish(value)
  }
  return generator
}
