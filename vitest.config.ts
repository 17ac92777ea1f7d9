import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/servers/setup.ts'],
    // Real servers and child processes: an own process per file, and no more files at once than a small machine has cores.
    pool: 'forks',
    maxWorkers: 2,
    testTimeout: 20_000,
    hookTimeout: 30_000,
    coverage: { include: ['src/**/*.ts'], exclude: ['src/**/*.generated.ts'] },
  },
})
