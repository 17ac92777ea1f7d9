// Two processes (here: two stores) want the same key in etcd. The second one is let in by the first one's release alone.
// Needs: etcd at ETCD_URL; the package @grpc/grpc-js.
// Run: npx tsx examples/etcd-hand-over.ts
import { createLocks } from 'holdfast'
import { etcdStore } from 'holdfast/etcd'

const endpoints = [process.env['ETCD_URL'] ?? 'http://127.0.0.1:2379']
const [one, other] = [createLocks(etcdStore({ endpoints })), createLocks(etcdStore({ endpoints }))]

const first = await one.acquire('report')
const waiting = other.acquire('report', { wait: '10s' })
await first.release()
const second = await waiting

console.log(`handed over: fence ${first.fence}, then ${second.fence}`)
await second.release()
await Promise.all([one.close(), other.close()])
if (second.fence <= first.fence) throw new Error('fences do not rise')
