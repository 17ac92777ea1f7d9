-- The tables of the store, made by migrate(). A key without holder, waiter, tombstone or lock-delay has no row anywhere.
--
-- Times are milliseconds since 1970 by the server's clock. Units and limits are whole numbers to 2^53. Both are doubles, which
-- are exact for them, and which the law computes with. Nothing that a renewal changes is in an index, so that renewals are HOT
-- updates. The settings make vacuum come early, because rows live for a short time.

-- Tickets that hold (h), were offered the key (o), or are leaving (l).
create table "{schema}".lock_holders (
  key text collate "C" not null,
  id text collate "C" not null,
  units double precision not null,
  unit_limit double precision not null,
  lock_delay_ms double precision not null,
  fence bigint not null,
  since double precision not null,
  state "char" not null,
  expires_at double precision not null,
  hold_until double precision not null,
  inbox text not null,
  owner text not null,
  primary key (key, id)
) with (
  fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500,
  autovacuum_analyze_threshold = 10000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false
);

-- Waiters, in order of arrival. grant_ms: how long the ticket holds if its message is its lease; 0 if it has to confirm. listens:
-- whether a session listened to the waiter's inbox when it last asked. group_name: empty for a waiter without a group. For a waiter
-- of a group, the group says when the waiter was heard of, until when it is remembered, and whether a session listens.
create table "{schema}".lock_waiters (
  key text collate "C" not null,
  place bigint not null,
  id text collate "C" not null,
  units double precision not null,
  unit_limit double precision not null,
  accept_ms double precision not null,
  lock_delay_ms double precision not null,
  grant_ms double precision not null,
  since double precision not null,
  heard_at double precision not null,
  remembered_until double precision not null,
  inbox text not null,
  listens boolean not null,
  owner text not null,
  group_name text collate "C" not null,
  primary key (key, place),
  unique (key, id)
) with (
  fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500,
  autovacuum_analyze_threshold = 10000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false
);

-- Waiters of one process for one key that are remembered by this one row: ten thousand waiters are 40 rows to update every two
-- seconds. All of them join in one call. So while `changed` is false, every waiter that was ever in the group still waits. The row
-- goes with the last waiter.
create table "{schema}".lock_wait_groups (
  key text collate "C" not null,
  name text collate "C" not null,
  size bigint not null,
  changed boolean not null,
  heard_at double precision not null,
  remembered_until double precision not null,
  listens boolean not null,
  primary key (key, name)
) with (
  fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500,
  autovacuum_analyze_threshold = 10000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false
);

-- Ids that were cancelled or evicted lately; the reason is JSON.
create table "{schema}".lock_tombstones (
  key text collate "C" not null,
  id text collate "C" not null,
  until double precision not null,
  evicted boolean not null,
  reason text not null,
  primary key (key, id)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500, vacuum_truncate = false);
create index lock_tombstones_by_end on "{schema}".lock_tombstones (until);

-- Keys that a lock-delay keeps closed.
create table "{schema}".lock_closures (
  key text collate "C" primary key,
  until double precision not null
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500, vacuum_truncate = false);

-- The highest fence of all keys that share a lock. So fences rise even if the clock was set back while the key was free. Rows and
-- not a sequence: two transactions that raise a sequence at once may leave it at the lower of their values.
create table "{schema}".lock_fences (
  lock integer primary key,
  fence bigint not null
) with (fillfactor = 20, autovacuum_vacuum_threshold = 1000, vacuum_truncate = false);
