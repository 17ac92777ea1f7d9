import { StoreError } from '../../errors.ts'
import { checkDefinition } from './options.ts'
import type { RawSchedule } from './stored-schedule.ts'

/**
 * Reads what a schedule is to do.
 *
 * @throws {StoreError} `store-refused`: a newer version of Holdfast has stored what this one does not know, or a newer Node.js knows
 * more time zones.
 */
export function readSchedule<Result>(
  { id, definition }: Pick<RawSchedule, 'id' | 'definition'>,
  read: () => Result,
): Result {
  try {
    checkDefinition(definition)
    return read()
  } catch (cause) {
    throw new StoreError(
      'store-refused',
      `This process cannot read the schedule ${JSON.stringify(id)}, and leaves it to others. A newer version of Holdfast or of Node.js may have stored it: update this process.`,
      { cause },
    )
  }
}
