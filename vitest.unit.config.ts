import { defineConfig } from 'vitest/config'
import { unitTests } from './test/unit-tests.ts'
import everything from './vitest.config.ts'

/** `npm run test:unit`: the tests that need no server, no root and no build. */
export default defineConfig({
  ...everything,
  test: { ...everything.test, include: [...unitTests()], globalSetup: [] },
})
