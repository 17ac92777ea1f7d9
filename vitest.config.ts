import { defineConfig } from 'vitest/config'
import { LongFirst } from './test/long-first.ts'

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/servers/setup.ts'],
    // Each file starts real servers and child processes and waits for them most of the time. Four files at once keep the two
    // cores of a small machine busy.
    pool: 'forks',
    maxWorkers: 4,
    sequence: { sequencer: LongFirst },
    // They end what hangs, and say nothing of how long something may take: on a busy machine everything takes ten times as long.
    testTimeout: 180_000,
    hookTimeout: 180_000,
    coverage: { include: ['src/**/*.ts'], exclude: ['src/**/*.generated.ts'] },
  },
})
