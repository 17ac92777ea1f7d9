// A process of any runtime that uses a lock file. Each line that it gets is a call, and each line that it prints is an
// answer.
import { createInterface } from 'node:readline'
import { deadlineIn } from '../../../../src/cli/run/deadline.ts'
import type { Ticket } from '../../../../src/contract/store.ts'
import { machineTime } from '../../../../src/stores/sqlite/machine.ts'
import { sqliteStore } from '../../../../src/stores/sqlite/open.ts'

type Call =
  | { readonly verb: 'clocks' }
  | { readonly verb: 'acquire' | 'listen'; readonly ticket: Ticket }
  | { readonly verb: 'release'; readonly key: string; readonly id: string }

const store = sqliteStore(process.argv[2] ?? '')

for await (const line of createInterface({ input: process.stdin })) {
  const call = JSON.parse(line) as Call
  try {
    print(await answer(call))
  } catch (error) {
    const { name, code, message } = error as Error & { readonly code?: string }
    print({ name, code, message })
  }
}
await store.close()

async function answer(call: Call): Promise<unknown> {
  switch (call.verb) {
    case 'clocks':
      return [machineTime().ms, deadlineIn(0).monotonicMs]
    case 'listen':
      await store.listen?.((wake) => print({ wake }))
      return { listening: true }
    case 'acquire':
      return store.acquire(call.ticket)
    case 'release':
      return store.release({ key: call.key, id: call.id, cancel: false })
    default:
      return call satisfies never
  }
}

function print(value: unknown): void {
  const text = JSON.stringify(value, (_, inner) => (typeof inner === 'bigint' ? String(inner) : inner))
  process.stdout.write(`${text}\n`)
}
