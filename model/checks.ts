/** A model with the properties that one search of it checks together. */
export interface World {
  readonly name: string
  readonly file: string
  readonly defines: readonly string[]
  /** More of everything, for `--full`. Undefined: the same. */
  readonly full?: readonly string[]
  /** What is bounded beside the number of tickets and servers, for people. */
  readonly bound: string
  readonly kind: 'always' | 'eventually'
  readonly properties: readonly Property[]
}

export interface Property {
  /** As in `#ifdef CHECK_<name>` of the model. */
  readonly name: string
  readonly says: string
  /** The errors that break it when they are planted. */
  readonly plants: readonly Plant[]
}

export interface Plant {
  /** As in `#ifdef PLANT_<name>` of the model. */
  readonly name: string
  readonly says: string
  /** What the search needs to find it, if it differs from the world's own. */
  readonly defines?: readonly string[]
}

export const WORLDS: readonly World[] = [
  {
    name: 'room',
    file: 'room.pml',
    defines: ['N=2', 'TTL=3', 'ACCEPT=2', 'PATIENCE=3'],
    full: ['N=2', 'TTL=4', 'ACCEPT=2', 'PATIENCE=4'],
    bound: 'none: any delay, loss and pause',
    kind: 'always',
    properties: [
      {
        name: 'exclusion',
        says: 'In the store, one ticket holds at most.',
        plants: [{ name: 'RENEWAL_REVIVES', says: 'A renewal brings back a ticket that has expired.' }],
      },
      {
        name: 'belief',
        says: 'While a client believes that it holds, the store says so, too.',
        plants: [
          {
            name: 'COUNT_FROM_ANSWER',
            says: 'A lease counts from the answer, and not from before the request.',
          },
          { name: 'COUNT_FROM_MESSAGE', says: 'A lease that came by message counts from the message.' },
          { name: 'TRIP_FORGOTTEN', says: 'The way of the last question to the store is left out.' },
          { name: 'BELIEVE_AFTER_LEAVING', says: 'A message is taken although the release is on its way.' },
        ],
      },
      {
        name: 'wake',
        says: 'While a ticket waits, another one holds or is offered the key: no wake is lost in the store.',
        plants: [{ name: 'NO_SECOND_SETTLE', says: 'A release removes the ticket and admits nobody.' }],
      },
      {
        name: 'buried',
        says: 'A ticket that was given back does not come back by a late request.',
        plants: [{ name: 'NO_TOMBSTONE', says: 'A cancel leaves no tombstone.' }],
      },
    ],
  },
  {
    name: 'waiting',
    file: 'waiting.pml',
    defines: ['N=3', 'LOSSES=1', 'CRASHES=2', 'PATIENCE=6', 'BOUND=7'],
    full: ['N=3', 'LOSSES=3', 'CRASHES=2', 'PATIENCE=6', 'BOUND=9'],
    bound: 'losses and crashes',
    kind: 'always',
    properties: [
      {
        name: 'handover',
        says: 'While somebody alive waits, the key is idle for BOUND ticks at most.',
        plants: [{ name: 'NEVER_ASK_AGAIN', says: 'A waiter asks once, and then relies on the message.' }],
      },
      {
        name: 'unheard',
        says: 'No whole ttl goes to a waiter that was silent for the acceptance term, and dead waiters cost one term together.',
        plants: [
          { name: 'GRANT_UNHEARD', says: 'The message is the lease of anybody who seems to listen.' },
          {
            name: 'DEAD_ONE_BY_ONE',
            says: 'An offer that lapsed leaves the silent waiters behind it in the queue.',
          },
        ],
      },
    ],
  },
  {
    name: 'waiting for ever',
    file: 'waiting.pml',
    defines: ['N=3', 'LOSSES=1', 'CRASHES=2', 'PATIENCE=6'],
    full: ['N=3', 'LOSSES=3', 'CRASHES=2', 'PATIENCE=6'],
    bound: 'losses and crashes',
    kind: 'eventually',
    properties: [
      {
        name: 'served',
        says: 'Nobody waits for ever.',
        plants: [
          { name: 'NO_ORDER', says: 'The queue is not in order of arrival.' },
          { name: 'NEVER_ASK_AGAIN', says: 'A waiter asks once, and then relies on the message.' },
        ],
      },
    ],
  },
  {
    name: 'fence',
    file: 'fence.pml',
    defines: ['LAST_US=6', 'GRANTS=6'],
    full: ['LAST_US=10', 'GRANTS=10'],
    bound: 'the clock and the number of grants',
    kind: 'always',
    properties: [
      {
        name: 'fences',
        says: 'Each fence of a key is above all before, whatever the clock does, idle rooms or lost data.',
        plants: [
          { name: 'COUNTER', says: 'A fence is a counter alone: `last + 1`.' },
          { name: 'TIME_ONLY', says: 'A fence is the time alone.' },
          { name: 'FLOOR_FORGOTTEN', says: 'An idle room takes its last fence with it.' },
        ],
      },
    ],
  },
  {
    name: 'redlock',
    file: 'redlock.pml',
    defines: ['RESTARTS=1'],
    full: ['RESTARTS=2'],
    bound: 'restarts',
    kind: 'always',
    properties: [
      {
        name: 'exclusion',
        says: 'Of two clients one believes at most that it holds.',
        plants: [
          { name: 'MINORITY', says: 'One vote of three is enough.' },
          { name: 'VOTES_AT_ONCE', says: 'The votes of a server that restarted empty count at once.' },
          { name: 'SHORT_MEMORY', says: 'They count again before the longest ttl is over.' },
          { name: 'OLD_ANSWERS', says: 'Votes of an earlier round count in this one.' },
          {
            name: 'COUNT_FROM_ANSWER',
            says: 'A lease counts from the last vote, and not from before the round.',
          },
          { name: 'HEAL_TOO_LATE', says: 'A holder joins forgetful servers again after its lease is over.' },
          {
            name: 'NO_CLAIM',
            says: 'A new ticket holds by its votes alone, without a claim. Two servers lose their data.',
            defines: ['RESTARTS=2'],
          },
        ],
      },
    ],
  },
  {
    name: 'redlock, leaving',
    file: 'redlock.pml',
    defines: ['RESTARTS=0'],
    bound: 'no restarts',
    kind: 'always',
    properties: [
      {
        name: 'buried',
        says: 'After its releases were answered, a ticket has no vote on any server, also after a late request.',
        plants: [
          { name: 'NO_TOMBSTONE', says: 'A cancel leaves no tombstone.' },
          { name: 'RELEASE_SOME', says: 'Only the servers that are known to have voted get the release.' },
        ],
      },
    ],
  },
  {
    name: 'redlock, fences',
    file: 'redlock-fence.pml',
    defines: ['MOST=3', 'LOSSES=1'],
    full: ['MOST=4', 'LOSSES=1'],
    bound: 'fences and losses',
    kind: 'always',
    properties: [
      {
        name: 'order',
        says: 'A fence is above that of every lease that was complete before its ticket began, and no other ticket has it.',
        plants: [
          { name: 'NO_CLAIM', says: 'The largest fence of the votes is used without a claim.' },
          { name: 'CLAIM_WITHOUT_VOTE', says: 'A server accepts a claim although the vote was lost.' },
          { name: 'CLAIM_NOT_KEPT', says: 'A claim does not raise the last fence of the server.' },
          {
            name: 'COUNTS_FROM_ZERO',
            says: 'A server that lost its data begins at zero, and not at its time.',
          },
        ],
      },
    ],
  },
]
