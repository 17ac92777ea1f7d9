/** An error that a programmer could make, planted for one row of the fault table of docs/promises.md. */
export interface Mutant {
  /** The first cell of the row. */
  readonly fault: string
  /** The error, in a few words. */
  readonly error: string
  readonly edits: readonly Edit[]
  /** The file of tests that has to notice, and a part of the full title of the tests. */
  readonly test: string
  readonly title: string
}

export interface Edit {
  readonly file: string
  /** A text that occurs once in the file, and the text that replaces it. */
  readonly find: string
  readonly replace: string
}

const ROOM = 'src/law/room.ts'
// A key with one holder and no queue, in the memory store.
const LONE = 'src/law/lone.ts'
const ACQUISITION = 'src/engine/acquisition.ts'
const MEMORY = 'test/stores/memory/conformance.test.ts'
const REDIS_SUITE = 'test/stores/redis/conformance.test.ts'
const SILENT_HEAD = 'a head that was not heard of for its acceptance term is offered the key'
const POSTGRES_ROOM = 'src/stores/postgres/sql/room.sql'
const EVERY = 'test/faults/every-store.test.ts'
const DEADLINE = 'test/engine/deadline.test.ts'
const REDIS = 'src/stores/redis/server/connection.ts'
const GIVES_BACK = 'void this.#context.release(this.ticket, { cancel: acquireMayFollow })\n    const waitedMs'

/** At least one for each row of the fault table, in the order of the rows. */
export const mutants: readonly Mutant[] = [
  mutant('a reply is lost after the effect', 'an acquire that is sent again is another ticket', {
    in: [MEMORY, 'an acquire that is sent again is the same ticket under the same fence'],
    edits: [
      [ROOM, 'if (known !== undefined) return { answer: known, wakes }', ''],
      [LONE, '}\n    confirm(lone, ticket, ms)', '}\n    enter(lone, ticket, ms, us)'],
    ],
  }),
  mutant('the reply of a renewal is lost', 'a renewal without an answer is not sent again', {
    in: ['test/engine/renewal.test.ts', ''],
    edits: [
      [
        'src/engine/renewed-lease.ts',
        'this.dueAt = Math.ceil(Math.min(at.monotonicMs + this.attemptMs(leftMs), deadlineAt))',
        'this.dueAt = Math.ceil(deadlineAt)',
      ],
    ],
  }),
  mutant('a request arrives late, after its cancel', 'a cancel leaves no tombstone', {
    in: [MEMORY, 'a cancel that overtakes its acquire'],
    edits: [[ROOM, 'if (request.cancel) bury(', 'if (request.cancel && time.ms < 0) bury(']],
  }),
  mutant('a caller gives up at any moment', 'a waiter that gives up stays in the queue', {
    in: [EVERY, 'on memory'],
    edits: [
      [ACQUISITION, GIVES_BACK, 'const waitedMs'],
      ['src/engine/local-wait.ts', 'context.store.localQueue?.leave(this)', ''],
    ],
  }),
  mutant(
    'a release is repeated when somebody else has the key',
    'a release takes the key from whoever has it',
    {
      in: [MEMORY, 'a release that is sent again finds nothing'],
      edits: [
        [
          ROOM,
          'const was = depart(room, request.id, time)',
          'const was = depart(room, room.holders.first?.id ?? request.id, time)',
        ],
      ],
    },
  ),
  mutant('the process of the holder is killed', 'a lease never ends', {
    in: [MEMORY, 'a holder that is not heard of for its ttl is gone'],
    edits: [
      [ROOM, 'if (holder.expiresAt <= time.ms) {', 'if (holder.expiresAt <= 0) {'],
      [LONE, 'holder !== undefined && lone.expiresAt > ms', 'holder !== undefined'],
    ],
  }),
  mutant('the process of waiters in front is killed', 'each dead waiter costs an acceptance term', {
    in: [MEMORY, 'an offer that nobody takes also passes the waiters right behind it'],
    edits: [[ROOM, 'if (lapsed) dropSilent(room, time)', '']],
  }),
  mutant('the process of waiters in front is frozen', 'a head that nobody heard of gets its full ttl', {
    in: [MEMORY, 'a head that was not heard of for its acceptance term'],
    edits: [[ROOM, 'isPlain && heardAt + ticket.acceptMs > time.ms', 'isPlain']],
  }),
  mutant('the process of waiters in front is frozen', 'a quick release grants such a head its ttl on Redis', {
    in: [REDIS_SUITE, SILENT_HEAD],
    edits: [
      ['src/stores/redis/lua/release.lua', "listens ~= '0' and heard + accept > now", "listens ~= '0'"],
    ],
  }),
  mutant('the process of waiters in front is frozen', 'any other call grants such a head its ttl on Redis', {
    in: [REDIS_SUITE, SILENT_HEAD],
    edits: [
      [
        'src/stores/redis/lua/parts/room.lua',
        "not isMarked(waiter, '0') and heardAt(waiter) + waiter.accept > now",
        "not isMarked(waiter, '0')",
      ],
    ],
  }),
  mutant('the process of waiters in front is frozen', 'such a head gets its full ttl on PostgreSQL', {
    in: ['test/stores/postgres/conformance.test.ts', SILENT_HEAD],
    edits: [
      [
        POSTGRES_ROOM,
        'v_waiter.grant_ms > 0 and v_waiter.heard_at + v_waiter.accept_ms > v_now',
        'v_waiter.grant_ms > 0',
      ],
    ],
  }),
  mutant('a head is granted the key, and its process is gone', 'every process listens on PostgreSQL', {
    in: ['test/stores/postgres/unreached.test.ts', 'an offer passes a waiter whose process has no session'],
    edits: [
      [
        POSTGRES_ROOM,
        'select case when pg_try_advisory_lock(1212236373, hashtext(p_inbox)) then pg_advisory_unlock(1212236373, hashtext(p_inbox)) else false end',
        'select false',
      ],
    ],
  }),
  mutant('a head is granted the key, and its process is gone', 'a message that reaches nobody is a lease', {
    in: [
      'test/stores/sqlite/messages.test.ts',
      'a head that is killed just before its turn is passed at once',
    ],
    edits: [[ROOM, ' && room.reaches(ticket.id)', '']],
  }),
  mutant('the process of the holder is frozen past its ttl', 'a lease ends by its timer only', {
    in: ['test/engine/blocked-loop.test.ts', 'assertHeld throws in the very next statement'],
    edits: [
      ['src/engine/lease-deadline.ts', 'return this.leftMs(at) <= 0', 'return this.leftMs(at) <= -1e12'],
    ],
  }),
  mutant(
    "the event loop stands still, the machine sleeps, a client's clock is set",
    'only the monotonic clock is read',
    {
      in: [DEADLINE, 'so a machine that slept past the ttl'],
      edits: [
        [
          'src/engine/lease-deadline.ts',
          'Math.max(at.monotonicMs - this.askedAtMs, at.wallMs - this.askedAtWallMs)',
          '(at.monotonicMs - this.askedAtMs)',
        ],
      ],
    },
  ),
  mutant('the client is cut off', 'a renewal that fails counts as one that succeeds', {
    in: ['test/engine/loss.test.ts', ''],
    edits: [
      [
        'src/engine/renewed-lease.ts',
        'unanswered(error: unknown): void {',
        'unanswered(error: unknown): void {\n    this.confirm({ askedAt: this.now(), answeredAt: this.now() }, this.ticket.ttlMs)',
      ],
    ],
  }),
  mutant('the store is silent for 15 seconds', 'a silent connection is kept', {
    in: ['test/stores/redis/faults.test.ts', 'through ioredis 5 a connection that stays silent is replaced'],
    edits: [[REDIS, 'performance.now() - this.#heardAt > SILENCE_MS)', 'this.#closed)']],
  }),
  mutant('the store is silent for ten minutes', 'a silent subscription is kept', {
    in: [
      'test/stores/redis/silence.test.ts',
      'one server, through ioredis 5 a subscription that falls silent',
    ],
    edits: [
      [
        'src/stores/redis/server/channels.ts',
        'owedSince + SILENCE_MS - performance.now()',
        'owedSince + 1000 * SILENCE_MS - performance.now()',
      ],
    ],
  }),
  mutant('a holder during such a silence', 'the deadline of a renewal counts from the reply', {
    in: [DEADLINE, 'moves with a renewal to ttl after the renewal was written'],
    edits: [
      ['src/engine/delivery.ts', 'one.ticket, when)', 'one.ticket, { ...when, askedAt: when.answeredAt })'],
    ],
  }),
  mutant('the store is away, and back before the deadline', 'a renewal that fails ends the lease', {
    in: ['test/engine/renewal.test.ts', ''],
    edits: [
      [
        'src/engine/renewed-lease.ts',
        'unanswered(error: unknown): void {',
        "unanswered(error: unknown): void {\n    return this.lose('expired', 'It could not be renewed.')",
      ],
    ],
  }),
  mutant('the store restarts with its data', 'a boot of the machine is taken for another one', {
    in: ['test/stores/sqlite/clock.test.ts', 'a second process of the same boot drops no ticket'],
    edits: [['src/stores/sqlite/lock-file.ts', 'meta.boot === boot', 'meta.boot !== boot']],
  }),
  mutant('the server dies in the middle of a write', 'a commit does not wait for the disk', {
    in: ['test/stores/postgres/durability.test.ts', 'a grant, a confirmation and an eviction outlive'],
    edits: [[POSTGRES_ROOM, "perform set_config('synchronous_commit', 'on', true);", 'null;']],
  }),
  mutant('the store loses its data', 'fences only count', {
    in: [MEMORY, 'fences are integers that rise with every new holder and are as large as'],
    edits: [
      [ROOM, 'Math.max(room.lastFence + 1, time.us)', 'room.lastFence + 1'],
      [LONE, 'Math.max(lone.fence + 1, us)', 'lone.fence + 1'],
    ],
  }),
  mutant('another server takes over', 'news of the Sentinels are not heard', {
    in: ['test/stores/redis/sentinel/sentinel.test.ts', 'an old master that no Sentinel can demote'],
    edits: [
      [
        'src/stores/redis/sentinel/master-watch.ts',
        'answer.epoch > epochOf(this.#known ?? null)',
        'answer.epoch < 0',
      ],
    ],
  }),
  mutant('the majority is away', 'one server of five is a majority', {
    in: ['test/stores/redlock/faults.test.ts', 'with the majority away (kill)'],
    edits: [['src/stores/redlock/redlock-store.ts', 'Math.floor(servers.length / 2) + 1', '1']],
  }),
  mutant("the store's clock is set back", 'fences are the time only', {
    in: ['test/stores/redis/clock-set-back.test.ts', 'fences rise on every way they are given'],
    edits: [['src/stores/redis/lua/parts/fence.lua', 'us > previous and us or previous + 1', 'us']],
  }),
  mutant("the store's clock is set forward", 'the last fence does not count on a free key', {
    in: ['test/stores/redis/cluster/clocks.test.ts', 'the clocks of all masters set back and forward'],
    edits: [
      [
        'src/stores/redis/lua/acquire.lua',
        "if last < tonumber(fence) then return 'h' .. fence end",
        "do return 'h' .. fence end",
      ],
    ],
  }),
  mutant('every wake is lost', 'a waiter asks again only when it is woken', {
    in: ['test/faults/lost-wakes.test.ts', 'when every published message is lost'],
    edits: [
      [
        'src/engine/acquisition-state.ts',
        'return askAgainMs >= 1 ? askAgainMs',
        'return askAgainMs >= 1 ? 1000 * askAgainMs',
      ],
    ],
  }),
  mutant('the connection for wakes breaks', 'waiters do not ask anew when messages flow again', {
    in: ['test/engine/waiting.test.ts', 'for all asks about every waiter and every lease in one request'],
    edits: [['src/engine/wakes.ts', 'if (waiter.bucket !== undefined) waiter.wake()', '']],
  }),
  mutant('wakes come twice, late, or are forged', 'a hint is taken for a lease', {
    in: ['test/hostile/messages.test.ts', 'on redis'],
    edits: [
      [
        ACQUISITION,
        "    if (this.#state.tag !== 'waiting') return\n    this.dueAt = 0",
        "    const at = this.#context.now()\n    if (this.#state.tag === 'waiting') return this.#deliver(1n, { askedAt: at, answeredAt: at })",
      ],
    ],
  }),
  mutant('no room: a full disk, no memory', 'a full etcd counts as one that is away', {
    in: ['test/faults/no-room.test.ts', 'a full etcd'],
    edits: [
      [
        'src/stores/etcd/grpc/failures.ts',
        'if (/database space exceeded/.test(message)) {',
        'if (message === prefix) {',
      ],
    ],
  }),
  mutant('wakes come twice, late, or are forged', 'a message of an earlier wait is taken for a lease', {
    in: ['test/engine/granted.test.ts', 'of an earlier wait of the same ticket is a hint'],
    edits: [[ACQUISITION, 'this.#askedAgain ? undefined : sampleOf(answer', 'sampleOf(answer']],
  }),
  mutant('the answers are nonsense', 'any text is taken for a fence', {
    in: ['test/stores/redis/hostile.test.ts', 'a server that answers a fence of 2 MB fails every request'],
    edits: [['src/stores/answers.ts', 'if (!this.#heldLine.test(line)) throw this.#unexpected(line)', '']],
  }),
  mutant('a stranger writes to the rows', 'a fence that nobody gave is counted on from', {
    in: ['test/hostile/rows.test.ts', 'on sqlite'],
    edits: [
      [
        'src/stores/sqlite/room-window.ts',
        'if (Number.isSafeInteger(fence) && fence >= 0 && fence < MOST_FENCE) return fence',
        'if (fence !== MOST_FENCE) return fence',
      ],
    ],
  }),
  mutant('rights are missing', 'missing rights count as a server that is away', {
    in: ['test/stores/postgres/surroundings.test.ts', 'a role without rights is told which page'],
    edits: [['src/postgres/failures.ts', "'42501': RIGHTS,", '']],
  }),
  mutant('the server refuses for a moment', 'a script that was flushed is not sent again', {
    in: ['test/stores/redis/faults.test.ts', 'through ioredis 5 scripts that are flushed'],
    edits: [[REDIS, "if (replyCode(error) !== 'NOSCRIPT') throw error", 'throw error']],
  }),
  mutant('a waiter leaves those that are remembered together', 'the group counts as it was', {
    in: ['test/stores/redis/groups.test.ts', 'a waiter that gives up leaves alone'],
    edits: [
      [
        'src/stores/redis/lua/parts/group.lua',
        "known.count, known.changed, known.stale = known.count - 1, '1', true",
        'known.count, known.stale = known.count - 1, true',
      ],
    ],
  }),
  mutant('a waiter leaves those that are remembered together', 'a hand-over leaves the group as it was', {
    in: ['test/stores/redis/groups.test.ts', 'the head of a group gets the key by one release'],
    edits: [['src/stores/redis/lua/release.lua', "%.0f %.0f%s %.0f 1'", "%.0f %.0f%s %.0f 0'"]],
  }),
  mutant('a waiter leaves those that are remembered together', 'a question finds a group that has changed', {
    in: ['test/stores/redis/groups.test.ts', 'each waiter of a group hears of its eviction'],
    edits: [
      ['src/stores/redis/lua/renew.lua', "if not known or known.changed ~= '0' then", 'if not known then'],
      ['src/stores/redis/lua/renew.lua', "if known.changed ~= '0' or room.stuck then", 'if room.stuck then'],
    ],
  }),
  mutant(
    'a waiter leaves those that are remembered together',
    'a group that all have left begins anew under its name',
    {
      in: [
        'test/stores/redis/group-attacks.test.ts',
        'a group whose first waiters leave before the others join',
      ],
      edits: [
        ['src/stores/redis/lua/parts/group.lua', "asked.begins and not emptied[name] and '0' or '1'", "'0'"],
      ],
    },
  ),
  mutant('waiters are remembered together, and some replies are lost', 'the group counts as whole', {
    in: ['test/stores/redis/wait-groups.test.ts', 'a group that was made in part only is made anew'],
    edits: [['src/stores/redis/server/renewals.ts', 'group.isOver = true\n      throw error', 'throw error']],
  }),
  mutant('waiters are remembered together, and some replies are lost', 'waiters on any terms are one group', {
    in: ['test/stores/redis/group-attacks.test.ts', 'waiters that come together on other terms'],
    edits: [['src/stores/redis/server/room-requests.ts', ' && sameTerms(before.one, asked)', '']],
  }),
  mutant(
    'a leader gives way, and what it has sent arrives when another one leads',
    'a leader sends back whoever has the ticket',
    {
      in: ['test/primitives/priority.test.ts', 'takes the key from nobody if what it has sent arrives'],
      edits: [['src/primitives/succession.ts', ', onlyIfWaiting: true }', ' }']],
    },
  ),
  mutant(
    'a leader gives way, and what it has sent arrives when another one leads',
    'a leader gives way to its equals',
    {
      in: ['test/primitives/priority.test.ts', 'does not lead instead of one of the same priority'],
      edits: [['src/primitives/succession.ts', 'rank > priority)', 'rank >= priority)']],
    },
  ),
  mutant(
    'no process is there for hours, and ticks of a schedule are missed',
    'every process that comes back tells of all of them',
    {
      in: ['test/schedule/missed-events.test.ts', 'is told once when several processes come back together'],
      edits: [
        [
          'src/schedule/missed-ticks.ts',
          'firstMs >= beforeMs || !(await marks.claimMissed(firstMs, settlement.rememberMs(firstMs)))',
          'firstMs >= beforeMs',
        ],
      ],
    },
  ),
  mutant('many ask for fences at once', 'a fence is used twice', {
    in: [MEMORY, 'each of several holders has a fence of its own'],
    edits: [
      [
        ROOM,
        'Math.max(room.lastFence + 1, time.us)',
        'Math.max(room.lastFence, time.us - (time.us % 1_000_000))',
      ],
    ],
  }),
  mutant('a crowd waits for one key', 'a waiter polls', {
    in: ['test/faults/crowd.test.ts', 'a hundred waiters that wait cost at most two requests a second'],
    edits: [
      [
        'src/engine/acquisition-state.ts',
        'return askAgainMs >= 1 ? askAgainMs',
        'return askAgainMs >= 1 ? 20',
      ],
    ],
  }),
  mutant('a writer waits behind a stream of readers', 'a newcomer goes before the queue', {
    in: [MEMORY, 'a newcomer does not pass those who wait'],
    edits: [[ROOM, 'if (room.queue.size === 0 && admits(', 'if (admits(']],
  }),
  mutant('several keys are taken in any order', 'keys are taken in the order in which they are named', {
    in: ['test/primitives/together.test.ts', 'overlapping sets never deadlock'],
    edits: [['src/primitives/together.ts', '.sort((one, other) => (one < other ? -1 : 1))', '']],
  }),
  mutant('a pooler stands in between', 'a pooler is not noticed', {
    in: ['test/stores/postgres/surroundings.test.ts', 'on the package pg, everything works, and no listener'],
    edits: [
      [
        'src/postgres/connection.ts',
        'this.isPooled = this.backendPid !== this.session.announcedPid',
        'this.isPooled = false',
      ],
    ],
  }),
  mutant('the slots of a cluster move', 'a script goes on where the slot is leaving', {
    in: ['test/stores/redis/cluster/moves.test.ts', 'a room is never left half done'],
    edits: [
      [
        'src/stores/redis/cluster/lua/parts/cluster-stay.lua',
        "redis.call('GET', string.sub(KEYS[1], 1, -#'fence' - 1) .. 'probe')",
        'local stays = true',
      ],
    ],
  }),
  mutant(
    'the process wants to end, and somebody holds or waits',
    'the timer of the renewals keeps the process',
    {
      in: ['test/engine/process-exit.test.ts', ''],
      edits: [['src/base/clock.ts', 'timeout.unref()\n    return {', 'return {']],
    },
  ),
]

interface Planted {
  readonly in: readonly [test: string, title: string]
  readonly edits: readonly (readonly [file: string, find: string, replace: string])[]
}

function mutant(fault: string, error: string, { in: [test, title], edits }: Planted): Mutant {
  return { fault, error, test, title, edits: edits.map(([file, find, replace]) => ({ file, find, replace })) }
}
