import { BaseSequencer, type TestSpecification } from 'vitest/node'

/** These files run for minutes. Begun last, each would run alone at the end. */
const LONG = [
  'test/simulation/histories.',
  'test/law/mutation.',
  'test/runtimes/stores.',
  'test/model/model.',
  'test/package/declarations.',
  'test/processes/dead-waiters.',
  'test/stores/redis/silence.',
  'test/compare/compare.',
]

/** Begins with the files that take longest. Without a cache of durations vitest goes by the size of files. */
export class LongFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files)
    const isLong = ({ moduleId }: TestSpecification) => LONG.some((name) => moduleId.includes(name))
    return [...sorted.filter(isLong), ...sorted.filter((file) => !isLong(file))]
  }
}
