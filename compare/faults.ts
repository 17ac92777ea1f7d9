import type { Fault } from './fault.ts'
import { lossFaults } from './faults/loss.ts'
import { networkFaults } from './faults/network.ts'
import { quorumFaults } from './faults/quorum.ts'
import { waitFaults } from './faults/wait.ts'

/** In the order of docs/compare.md. */
export const faults: readonly Fault[] = [...networkFaults, ...lossFaults, ...quorumFaults, ...waitFaults]
