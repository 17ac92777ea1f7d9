import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/servers/setup.ts'],
    // Real servers and child processes: an own process per file, and no more files at once than a small machine has cores.
    pool: 'forks',
    maxWorkers: 2,
    // They end what hangs. How long something may take is said by the tests themselves.
    testTimeout: 60_000,
    hookTimeout: 60_000,
    coverage: { include: ['src/**/*.ts'], exclude: ['src/**/*.generated.ts'] },
  },
})
