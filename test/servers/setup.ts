import { ensureBinary } from './install.ts'

/** Once before all tests: a missing server is installed or fails the run, and never skips a test. */
export default function setup(): void {
  ensureBinary('redis-server')
}
