-- The tables of the jobs, version 1; their functions are in the files beside it.
-- Inputs: none; "{schema}" is replaced by the name of the schema.
-- Result: none.
--
-- Jobs that have not ended are in one small table, and those that have in another: so the past never slows down the present.
-- A job is
--   ready     in the index from which claims take
--   blocked   taken out of that index, because another job of its group comes first
--   delayed   until due_at
--   pending   waits for its children. If it has a due_at, it is delayed after that
--   running   leased to a worker until due_at; its attempt number is the fence of the lease
-- All times are by this database's clock. The functions lock in an order that cannot deadlock: group locks before rows, several
-- group locks sorted. A function that holds rows already never waits for a group lock: it only tries.
--
-- These tables have no check constraints: PostgreSQL reads each of them anew in every statement that writes a row. Three of them made an
-- enqueue a third slower. The tests add them, in test/jobs/checks.ts.
create sequence "{schema}".job_ids;

create table "{schema}".jobs (
  id bigint primary key,
  name text collate "C" not null,
  state text not null,
  priority smallint not null,
  payload json not null,
  unique_key text collate "C",
  -- The unique key stays taken while the job runs.
  holds_key boolean not null default false,
  -- Until when the unique key stays taken even if the job has ended. Null: it does not.
  key_until timestamptz,
  group_key text collate "C",
  -- It runs beside fewer than so many jobs of its group.
  group_limit integer not null default 1,
  -- Rises with every claim and never falls, not even when a dead job is tried again.
  attempt integer not null default 0,
  -- Attempts that failed, or whose lease ended.
  failures integer not null default 0,
  max_attempts integer not null,
  backoff_ms bigint not null,
  max_backoff_ms bigint not null,
  -- Of a delayed or a running job, always. Of a pending one, maybe. Of others, never.
  due_at timestamptz,
  -- For a running job: the worker claimed the job before it had a place for it, so it may not have begun the job.
  ahead boolean not null default false,
  -- For a running job: its lease has ended, and the end of the attempt has to wait for another transaction.
  overdue boolean not null default false,
  enqueued_at timestamptz not null,
  -- Since when it could be claimed. Of a delayed job: from when on. Of a job that was claimed: the time before its claim.
  ready_at timestamptz not null default clock_timestamp(),
  started_at timestamptz,
  worker text,
  -- The traceparent of the span that enqueued it (W3C Trace Context). Null: none.
  trace text,
  error text,
  -- The latest 100 failed attempts: [{ attempt, worker, startedAt, endedAt, error }], with instants in ms since 1970. Null: none.
  failed_attempts jsonb,
  -- What the latest attempt to report any has reported.
  progress json,
  -- Somebody waits for the job, so each change of it is notified.
  watched boolean not null default false,
  -- The jobs that have to be done first. Null: none.
  children bigint[],
  -- cancel, run or wait. Null exactly if there are no children.
  if_child_fails text
) with (
  -- So that the new version of a claimed row fits into the page of the old one, which is locked and in memory already.
  fillfactor = 50,
  -- Every job leaves dead row versions, which the next claim has to pass.
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0
);

alter sequence "{schema}".job_ids owned by "{schema}".jobs.id;

create index jobs_ready on "{schema}".jobs (name, priority desc, id) where state = 'ready';
-- Two of them: a million delayed jobs that are due at once must not stand before the lease that has ended.
create index jobs_delayed on "{schema}".jobs (due_at) where state = 'delayed';
create index jobs_leases on "{schema}".jobs (due_at) where state = 'running';
create unique index jobs_unique on "{schema}".jobs (name, unique_key)
  where unique_key is not null and (state <> 'running' or holds_key);
-- The database itself refuses a second running job of a group whose jobs run one at a time, whatever a claim does.
create unique index jobs_group_running on "{schema}".jobs (group_key, (case when group_limit > 1 then id else 0 end))
  where group_key is not null and state = 'running';
create index jobs_group_waiting on "{schema}".jobs (group_key, priority desc, id)
  where group_key is not null and state in ('ready', 'blocked');

create table "{schema}".ended_jobs (
  id bigint primary key,
  name text collate "C" not null,
  -- completed, dead, cancelled or superseded.
  state text not null,
  priority smallint not null,
  payload json not null,
  unique_key text collate "C",
  holds_key boolean not null default false,
  key_until timestamptz,
  group_key text collate "C",
  group_limit integer not null default 1,
  attempt integer not null,
  failures integer not null,
  max_attempts integer not null,
  backoff_ms bigint not null,
  max_backoff_ms bigint not null,
  enqueued_at timestamptz not null,
  started_at timestamptz,
  ended_at timestamptz not null,
  worker text,
  trace text,
  error text,
  failed_attempts jsonb,
  progress json,
  -- What the handler has returned.
  result json,
  children bigint[],
  if_child_fails text,
  -- When to tell its parents that it has ended. Null: they know, or it is no child.
  tell_at timestamptz
);

-- For lists of dead jobs, newest first. Completed jobs, of which there are many, do not pay for it.
create index ended_jobs_failed on "{schema}".ended_jobs (state, id) where state <> 'completed';
create index ended_jobs_untold on "{schema}".ended_jobs (tell_at) where tell_at is not null;
-- The keys that stay taken after the end of their jobs.
create index ended_jobs_keys on "{schema}".ended_jobs (name, unique_key) where key_until is not null;
-- For the clean-up, which begins with the oldest. A BRIN index would cost less, but not help once the space of deleted rows is used again:
-- then there are old and new ones on every page.
create index ended_jobs_completed_age on "{schema}".ended_jobs (greatest(ended_at, key_until)) where state = 'completed';
create index ended_jobs_failed_age on "{schema}".ended_jobs (greatest(ended_at, key_until)) where state <> 'completed';

-- The children of jobs that have not ended. A child that has ended is kept for its parents as long as it is here.
create table "{schema}".job_children (
  child bigint,
  parent bigint,
  -- The parent waits for it no longer.
  done boolean not null,
  primary key (child, parent)
);
create index job_children_open on "{schema}".job_children (parent) where not done;
-- A child may have very many parents, and those that it has told would have to be passed over.
create index job_children_untold on "{schema}".job_children (child, parent) where not done;

-- Sends a message when the transaction commits. A session that listens and never ends its transaction fills the queue of the server, and with a
-- full queue the commit would fail. Without a message, workers and those who wait look by themselves, a little later.
-- It has no settings and one expression, so PostgreSQL puts that expression in the place of each call.
create function "{schema}".jobs_notify(channel text, message text) returns text language sql as $function$
  select case when pg_notification_queue_usage() < 0.9 then pg_notify(channel, message)::text end
$function$;

comment on table "{schema}".job_children is 'holdfast: which jobs have to be done before which others.';
comment on table "{schema}".jobs is 'holdfast: jobs that are pending, ready, blocked, delayed or running.';
comment on table "{schema}".ended_jobs is 'holdfast: jobs that have ended, until they are cleaned up.';
