import { openAdvisorySession, openAdvisoryXact, openAdvisoryXactByExecutor } from './adapters/advisory.ts'
import { openAsyncLock } from './adapters/async-lock.ts'
import { openAsyncMutex } from './adapters/async-mutex.ts'
import { openBareAdvisorySession, openBareAdvisoryXact } from './adapters/bare-advisory.ts'
import { openBareEtcd } from './adapters/bare-etcd.ts'
import { openBareAdvisoryQueue, openBareRow } from './adapters/bare-postgres.ts'
import { openBareQueue } from './adapters/bare-queue.ts'
import { openBareQuorum } from './adapters/bare-quorum.ts'
import { openBareRedis } from './adapters/bare-redis.ts'
import { openBareRedisQueue } from './adapters/bare-redis-queue.ts'
import { openBareSqlite } from './adapters/bare-sqlite.ts'
import { openEtcd } from './adapters/etcd.ts'
import { openEtcd3, openEtcd3Election } from './adapters/etcd3.ts'
import {
  openMemory,
  openMemoryWithOptions,
  openPostgres,
  openPostgresAsynchronous,
  openQuorum,
  openRedis,
  openSqlite,
} from './adapters/holdfast.ts'
import {
  byListeners,
  byOpenTelemetryApi,
  byOpenTelemetrySdk,
  byPrometheus,
  observed,
} from './adapters/observed.ts'
import { openProperLockfile } from './adapters/proper-lockfile.ts'
import { openRedisSemaphore } from './adapters/redis-semaphore.ts'
import { openRedlock, openRedlockOn } from './adapters/redlock.ts'
import type { Metric, Scenario } from './scenario.ts'
import { besideWaiters } from './scenarios/beside.ts'
import { asyncLockCallbacks, bareCallbacks, callbacks, holdfastCallbacks } from './scenarios/callback.ts'
import { crowd } from './scenarios/crowd.ts'
import { coldCycle, cycle, tightCycle } from './scenarios/cycle.ts'
import { betweenProcesses, fairness } from './scenarios/fairness.ts'
import { flight } from './scenarios/flight.ts'
import { memoryFootprint, redisFootprint } from './scenarios/footprint.ts'
import { handOver } from './scenarios/hand-over.ts'
import { idle } from './scenarios/idle.ts'
import { idleOn, idleOnEtcd, onPostgres, onSqlite } from './scenarios/idle-stores.ts'
import { jobsBeside, jobsOneWorker, jobsThroughput } from './scenarios/jobs.ts'
import { jobsLatency } from './scenarios/jobs-start.ts'
import { manyLeases } from './scenarios/leases.ts'
import { queueLength, remoteQueueLength } from './scenarios/queue-length.ts'
import { type QuorumFault, quorumCycle } from './scenarios/quorum-cycle.ts'
import { manyRenewed, manyRenewedWithListeners } from './scenarios/renewing.ts'
import { taken } from './scenarios/taken.ts'

const PER_SECOND: Metric = { name: 'cycles', unit: '/s', better: 'higher' }
const TOTAL: readonly Metric[] = [
  { name: 'total', unit: 'ms', better: 'lower' },
  { name: 'overtaken', unit: '', better: 'lower' },
]
const P50: Metric = { name: 'p50', unit: 'µs', better: 'lower' }

const RENEWING: readonly Metric[] = [
  { name: 'process', unit: '%', better: 'lower' },
  { name: 'server', unit: '%', better: 'lower' },
  { name: 'heap', unit: 'B/lease', better: 'lower' },
]

const IDLE: readonly Metric[] = [
  { name: 'requests', unit: '/s', better: 'lower' },
  { name: 'commands', unit: '/s', better: 'lower' },
  { name: 'server', unit: '%', better: 'lower' },
]

const IDLE_IN_PROCESS: readonly Metric[] = [
  { name: 'requests', unit: '/s', better: 'lower' },
  { name: 'tickets', unit: '/s', better: 'lower' },
  { name: 'process', unit: '%', better: 'lower' },
]

const quorumScenario = (fault: QuorumFault): Scenario => {
  const options = { fault, cycles: 10_000 }
  return {
    name: `redlock-free-${fault.replace(' ', '-')}`,
    title: `Five Redis servers, a free key, one at a time; faulty: ${fault}`,
    metrics: [P50, { name: 'p99', unit: 'µs', better: 'lower' }],
    target: '≤ 1.14x without fences, ≤ 1.4x with',
    candidates: [
      quorumCycle('SET NX PX + compare-and-delete, over at a quorum', openBareQuorum, options),
      quorumCycle('holdfast', openQuorum(true), options),
      quorumCycle('holdfast, without fences', openQuorum(false), options),
      quorumCycle('redlock 5', openRedlockOn, options),
    ],
  }
}

export const scenarios: readonly Scenario[] = [
  {
    name: 'memory-free',
    title: 'In process, a free key',
    metrics: [PER_SECOND],
    target: 'ahead of async-lock',
    candidates: [
      tightCycle('bare keyed queue', openBareQueue, 1_000_000),
      tightCycle('holdfast', openMemory, 500_000),
      tightCycle("holdfast, { ttl: '30s', wait: '5s' }", openMemoryWithOptions, 500_000),
      tightCycle('async-mutex', openAsyncMutex, 500_000),
      tightCycle('async-lock', openAsyncLock, 500_000),
    ],
  },
  {
    name: 'memory-crowd',
    title: 'In process, 1,000 waiters on one key',
    metrics: TOTAL,
    target: 'ahead of async-lock',
    candidates: [
      crowd('bare keyed queue', openBareQueue, 1000),
      crowd('holdfast', openMemory, 1000),
      crowd('async-mutex', openAsyncMutex, 1000),
      crowd('async-lock', openAsyncLock, 1000),
    ],
  },
  ...manyLeases.map(
    ([count, candidates]): Scenario => ({
      name: `memory-leases-${count}`,
      plot: { of: 'memory-leases', size: count },
      title: `In process, ${count.toLocaleString('en')} held leases, processor time each`,
      metrics: [
        { name: 'take', unit: 'µs', better: 'lower' },
        { name: 'renewal', unit: 'µs', better: 'lower' },
        { name: 'release', unit: 'µs', better: 'lower' },
        { name: 'longest stall', unit: 'ms', better: 'lower' },
        { name: 'heap', unit: 'B', better: 'lower' },
      ],
      target: '≤ 3 µs each, stalls ≤ 20 ms, heap ≤ 800 B',
      candidates,
    }),
  ),
  ...[10, 1000, 100_000].map(
    (waiters): Scenario => ({
      name: `memory-waiters-${waiters}`,
      plot: { of: 'memory-waiters', size: waiters },
      title: `In process, ${waiters.toLocaleString('en')} waiters on one key, processor time per hand-over`,
      metrics: [{ name: 'hand-over', unit: 'µs', better: 'lower' }],
      target: 'the same for 100,000 as for 10',
      candidates: [
        queueLength('bare keyed queue', openBareQueue, waiters),
        queueLength('holdfast', openMemory, waiters),
        queueLength('async-lock', openAsyncLock, waiters),
      ],
    }),
  ),
  {
    name: 'memory-callback',
    title: 'In process, a free key, callback form',
    metrics: [PER_SECOND],
    target: 'ahead of async-lock',
    candidates: [
      callbacks('bare keyed queue', bareCallbacks, 500_000),
      callbacks('holdfast', holdfastCallbacks, 500_000),
      callbacks('async-lock', asyncLockCallbacks, 500_000),
    ],
  },
  {
    name: 'sqlite-free',
    title: 'SQLite file, a free key, one at a time',
    metrics: [P50, PER_SECOND],
    target: '≤ 1.3x and < 100 µs',
    candidates: [
      cycle('two bare transactions', openBareSqlite, 20_000),
      cycle('holdfast', openSqlite, 20_000),
      cycle('proper-lockfile', openProperLockfile, 5000),
    ],
  },
  ...(['none', 'one hung', 'two killed'] as const).map(quorumScenario),
  {
    name: 'redis-free',
    title: 'Redis, a free key, one at a time',
    metrics: [P50, PER_SECOND],
    target: '≤ 1.1x',
    candidates: [
      cycle('SET NX PX + compare-and-delete', openBareRedis, 20_000),
      cycle('holdfast', openRedis, 20_000),
      cycle('redlock', openRedlock, 10_000),
      cycle('redis-semaphore', openRedisSemaphore, 10_000),
    ],
  },
  {
    name: 'redis-free-cold',
    title: 'Redis, a free key, one at a time, in the first second of a process',
    metrics: [P50, PER_SECOND],
    target: '≤ 1.2x',
    candidates: [
      coldCycle('SET NX PX + compare-and-delete', openBareRedis),
      coldCycle('holdfast', openRedis),
      coldCycle('redlock', openRedlock),
      coldCycle('redis-semaphore', openRedisSemaphore),
    ],
  },
  {
    name: 'redis-free-one-core',
    title: 'Redis, a free key, one at a time, client and server on one processor',
    metrics: [P50, PER_SECOND],
    target: '≤ 1.3x',
    oneCore: true,
    candidates: [
      cycle('SET NX PX + compare-and-delete', openBareRedis, 20_000),
      cycle('holdfast', openRedis, 20_000),
      cycle('redlock', openRedlock, 10_000),
      cycle('redis-semaphore', openRedisSemaphore, 10_000),
    ],
  },
  {
    name: 'redis-taken',
    title: 'Redis, a key that another client holds, one try at a time',
    metrics: [P50, PER_SECOND],
    target: '≤ 1.3x',
    candidates: [
      taken('SET NX PX', openBareRedis, 20_000),
      taken('holdfast', openRedis, 20_000),
      taken('redlock', openRedlock, 10_000),
      taken('redis-semaphore', openRedisSemaphore, 10_000),
    ],
  },
  {
    name: 'redis-flight',
    title: 'Redis, free keys, 64 in flight',
    metrics: [PER_SECOND],
    target: '≥ 1.0x',
    candidates: [
      flight('SET NX PX + compare-and-delete', openBareRedis, 200_000),
      flight('holdfast', openRedis, 200_000),
      flight('redlock', openRedlock, 50_000),
      flight('redis-semaphore', openRedisSemaphore, 100_000),
    ],
  },
  {
    name: 'redis-crowd',
    title: 'Redis, 1,000 waiters on one key',
    metrics: TOTAL,
    target: '≤ 1.3x, 0 overtaken',
    candidates: [
      crowd('Lua queue + message', openBareRedisQueue, 1000),
      crowd('holdfast', openRedis, 1000),
      crowd('redis-semaphore', openRedisSemaphore, 1000),
    ],
  },
  {
    name: 'redis-hand-over',
    title: 'Redis, hand-over with 100 waiters',
    metrics: [P50],
    target: '≤ 1.25x',
    candidates: [
      handOver('Lua queue + message', openBareRedisQueue, 10_000),
      handOver('holdfast', openRedis, 10_000),
      handOver('redis-semaphore', openRedisSemaphore, 500),
    ],
  },
  ...[10, 1000, 100_000].map(
    (waiters): Scenario => ({
      name: `redis-waiters-${waiters}`,
      plot: { of: 'redis-waiters', size: waiters },
      title: `Redis, ${waiters.toLocaleString('en')} waiters of one process on one key, time per hand-over`,
      metrics: [{ name: 'hand-over', unit: 'µs', better: 'lower' }],
      target: 'for 100,000 at most twice as for 1,000',
      candidates: [
        remoteQueueLength('Lua queue + message', openBareRedisQueue, waiters),
        remoteQueueLength('holdfast', openRedis, waiters),
      ],
    }),
  ),
  {
    name: 'redis-fairness',
    title: 'Redis, 4 processes × 25 loops on one key',
    metrics: [
      { name: 'Jain index', unit: '', better: 'higher' },
      { name: 'starved', unit: '', better: 'lower' },
      { name: 'hand-overs', unit: '/s', better: 'higher' },
    ],
    target: 'index ≥ 0.999, nobody starved',
    candidates: [
      fairness('Lua queue + message', 'bare-redis-queue'),
      fairness('holdfast', 'holdfast'),
      fairness('redlock', 'redlock'),
      fairness('redis-semaphore', 'redis-semaphore'),
    ],
  },
  {
    name: 'redis-between-processes',
    title: 'Redis, 4 processes × 25 loops on one key, time from one hand-over to the next',
    metrics: [{ name: 'hand-over', unit: 'µs', better: 'lower' }],
    target: '≤ 1.3x',
    candidates: [
      betweenProcesses('Lua queue + message', 'bare-redis-queue'),
      betweenProcesses('holdfast', 'holdfast'),
    ],
  },
  {
    name: 'redis-beside-100000',
    title: 'Redis, a free key, one at a time, while 100,000 waiters of one process wait for another',
    metrics: [P50, { name: 'p99', unit: 'µs', better: 'lower' }],
    target: 'p99 ≤ 10 ms',
    candidates: [
      besideWaiters('Lua queue + message', openBareRedisQueue, 100_000),
      besideWaiters('holdfast', openRedis, 100_000),
    ],
  },
  {
    name: 'redis-idle',
    title: 'Redis, 100 idle waiters of one process',
    metrics: IDLE,
    target: '≤ 2 requests and 3 commands /s',
    candidates: [
      idle('Lua queue + message', openBareRedisQueue, 100),
      idle('holdfast', openRedis, 100),
      idle('redis-semaphore', openRedisSemaphore, 100),
    ],
  },
  {
    name: 'redis-idle-10000',
    title: 'Redis, 10,000 idle waiters of one process',
    metrics: IDLE,
    target: '≤ 2 requests /s, server < 0.5 %',
    candidates: [
      idle('Lua queue + message', openBareRedisQueue, 10_000),
      idle('holdfast', openRedis, 10_000),
    ],
  },
  {
    name: 'sqlite-idle',
    title: 'SQLite file, idle waiters of one process',
    metrics: IDLE_IN_PROCESS,
    target: 'the same for 10,000 as for 100',
    candidates: [100, 10_000].map((waiters) => idleOn(onSqlite, waiters)),
  },
  {
    name: 'postgres-idle',
    title: 'PostgreSQL lease rows, idle waiters of one process',
    metrics: IDLE_IN_PROCESS,
    target: 'published',
    candidates: [100, 1000].map((waiters) => idleOn(onPostgres, waiters)),
  },
  {
    name: 'etcd-idle',
    title: 'etcd, idle waiters of one process',
    metrics: [
      { name: 'requests', unit: '/s', better: 'lower' },
      { name: 'server', unit: '%', better: 'lower' },
      { name: 'process', unit: '%', better: 'lower' },
    ],
    target: 'the same for 1,000 as for 100',
    candidates: [100, 1000].map(idleOnEtcd),
  },
  {
    name: 'redis-renewing',
    title: 'Redis, 10,000 held leases, renewed every 2 s',
    metrics: RENEWING,
    target: '≤ 1.2x in the process and in the server',
    candidates: manyRenewed,
  },
  {
    name: 'redis-renewing-listeners',
    title: 'Redis, 10,000 held leases with a listener on each signal, renewed every 2 s',
    metrics: RENEWING,
    target: '≤ 1.2x in the process and in the server, ≤ 800 B',
    candidates: manyRenewedWithListeners,
  },
  {
    name: 'observe-overhead-memory',
    title: 'In process, a free key, while somebody observes',
    metrics: [PER_SECOND],
    target: 'published',
    candidates: [
      tightCycle('nobody listens', openMemory, 500_000),
      tightCycle('a listener to each event', observed(byListeners, openMemory), 200_000),
      tightCycle('holdfast/observe/prometheus', observed(byPrometheus, openMemory), 100_000),
      tightCycle('holdfast/observe/otel without an SDK', observed(byOpenTelemetryApi, openMemory), 100_000),
      tightCycle('holdfast/observe/otel', observed(byOpenTelemetrySdk, openMemory), 50_000),
    ],
  },
  {
    name: 'observe-overhead-redis',
    title: 'Redis, a free key, one at a time, while somebody observes',
    metrics: [P50, PER_SECOND],
    target: 'published',
    candidates: [
      cycle('nobody listens', openRedis, 20_000),
      cycle('a listener to each event', observed(byListeners, openRedis), 20_000),
      cycle('holdfast/observe/prometheus', observed(byPrometheus, openRedis), 20_000),
      cycle('holdfast/observe/otel', observed(byOpenTelemetrySdk, openRedis), 20_000),
    ],
  },
  {
    name: 'postgres-free',
    title: 'PostgreSQL lease rows, a free key, one at a time',
    metrics: [P50, PER_SECOND],
    target: '≤ 2.5x',
    candidates: [
      cycle('INSERT a row + DELETE it', openBareRow, 5000),
      cycle('holdfast', openPostgres, 5000),
      cycle("holdfast, durability: 'asynchronous'", openPostgresAsynchronous, 5000),
    ],
  },
  {
    name: 'postgres-hand-over',
    title: 'PostgreSQL lease rows, hand-over with 100 waiters',
    metrics: [P50],
    target: '≤ 1.6x',
    candidates: [
      handOver('pg_advisory_lock on 100 connections', openBareAdvisoryQueue, 3000),
      handOver('holdfast', openPostgres, 3000),
      handOver("holdfast, durability: 'asynchronous'", openPostgresAsynchronous, 3000),
    ],
  },
  {
    name: 'postgres-advisory-xact',
    title: 'PostgreSQL, an advisory lock in a transaction',
    metrics: [P50, PER_SECOND],
    target: '≤ 1.2x',
    candidates: [
      cycle('BEGIN, pg_advisory_xact_lock, COMMIT', openBareAdvisoryXact, 10_000),
      cycle('holdfast', openAdvisoryXact, 10_000),
      cycle('holdfast through an executor', openAdvisoryXactByExecutor, 10_000),
    ],
  },
  {
    name: 'postgres-advisory-session',
    title: 'PostgreSQL, an advisory lock on a connection of its own',
    metrics: [P50, PER_SECOND],
    target: 'published',
    candidates: [
      cycle('connect, pg_advisory_lock, unlock, end', openBareAdvisorySession, 500),
      cycle('holdfast', openAdvisorySession, 500),
    ],
  },
  {
    name: 'footprint',
    title: 'Bytes per lease, waiter and idle key',
    metrics: [
      { name: 'lease', unit: 'B heap', better: 'lower' },
      { name: 'waiter', unit: 'B heap', better: 'lower' },
      { name: 'lease', unit: 'B server', better: 'lower' },
      { name: 'waiter', unit: 'B server', better: 'lower' },
      { name: 'idle key', unit: 'B', better: 'lower' },
    ],
    target: 'published',
    candidates: [redisFootprint, memoryFootprint],
  },
  jobsThroughput,
  jobsOneWorker,
  jobsBeside,
  jobsLatency,
  {
    name: 'etcd-free',
    title: 'etcd, a free key, one at a time',
    metrics: [P50, PER_SECOND],
    target: '≤ 1.1x',
    candidates: [
      cycle('txn on a shared lease', openBareEtcd, 4000),
      cycle('holdfast', openEtcd, 4000),
      cycle('etcd3 lock', openEtcd3, 2000),
    ],
  },
  {
    name: 'etcd-hand-over',
    title: 'etcd, hand-over with 100 waiters',
    metrics: [P50],
    target: '≤ 1.1x',
    candidates: [
      handOver('txn on a shared lease + watch', openBareEtcd, 4000),
      handOver('holdfast', openEtcd, 4000),
      handOver('etcd3 election', openEtcd3Election, 1000),
    ],
  },
]
