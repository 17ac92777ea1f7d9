-- The tables and functions of the jobs, version 1.
-- Inputs: none; "{schema}" is replaced by the name of the schema.
-- Result: none.
--
-- Jobs that are not over live in one small table, and those that are over in another: what has been done never slows down
-- what is to be done. A job is
--   ready     in the index from which claims take
--   blocked   taken out of that index, because another job of its group comes first
--   delayed   until due_at
--   running   leased to a worker until due_at; its attempt number is the fence of the lease
-- All times are of this database. Every function takes what it locks in an order that cannot deadlock: group locks before
-- rows, several group locks sorted; and whoever holds rows already only ever tries.
create sequence "{schema}".job_ids;

create table "{schema}".jobs (
  id bigint primary key,
  name text collate "C" not null,
  state text not null check (state in ('ready', 'blocked', 'delayed', 'running')),
  priority smallint not null,
  payload json not null,
  unique_key text collate "C",
  group_key text collate "C",
  -- Rises with every claim and never falls, not even when a dead job is tried again.
  attempt integer not null default 0,
  -- Attempts that failed, or whose worker was not heard of in time.
  failures integer not null default 0,
  max_attempts integer not null,
  backoff_ms bigint not null,
  max_backoff_ms bigint not null,
  due_at timestamptz check ((due_at is not null) = (state in ('delayed', 'running'))),
  enqueued_at timestamptz not null,
  started_at timestamptz,
  worker text,
  error text
) with (
  -- Every job leaves dead rows behind that the next claim has to step over.
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0
);

alter sequence "{schema}".job_ids owned by "{schema}".jobs.id;

create index jobs_ready on "{schema}".jobs (name, priority desc, id) where state = 'ready';
create index jobs_due on "{schema}".jobs (due_at) where state in ('delayed', 'running');
create unique index jobs_unique on "{schema}".jobs (name, unique_key) where unique_key is not null and state <> 'running';
-- That a group runs one at a time is not only the claim's care: the database would refuse the second one.
create unique index jobs_group_running on "{schema}".jobs (group_key) where group_key is not null and state = 'running';
create index jobs_group_waiting on "{schema}".jobs (group_key, priority desc, id)
  where group_key is not null and state in ('ready', 'blocked');

create table "{schema}".finished_jobs (
  id bigint primary key,
  name text collate "C" not null,
  state text not null check (state in ('completed', 'dead', 'cancelled', 'superseded')),
  priority smallint not null,
  payload json not null,
  unique_key text collate "C",
  group_key text collate "C",
  attempt integer not null,
  failures integer not null,
  max_attempts integer not null,
  backoff_ms bigint not null,
  max_backoff_ms bigint not null,
  enqueued_at timestamptz not null,
  started_at timestamptz,
  finished_at timestamptz not null,
  worker text,
  error text
);

-- A few bytes for many rows, which are written in this order: a tree would cost every completion another entry.
create index finished_jobs_age on "{schema}".finished_jobs using brin (finished_at) with (pages_per_range = 16, autosummarize = on);

comment on table "{schema}".jobs is 'holdfast: jobs that are ready, blocked, delayed or running.';
comment on table "{schema}".finished_jobs is 'holdfast: jobs that are over, until they are cleaned up.';

-- Raises ZF002 unless this is still the transaction that an earlier statement was in, which that statement gave a number.
create function "{schema}".jobs_assert_transaction(earlier text) returns void language plpgsql as $function$
begin
  if pg_current_xact_id_if_assigned()::text is distinct from earlier then
    raise exception using errcode = 'ZF002', message = 'there is no open transaction';
  end if;
end
$function$;

-- Enqueues a list of jobs in the caller's transaction, and wakes their workers when it commits. Each payload is a JSON text:
-- inside the list's own JSON it could not contain \u0000.
-- Answers an array with the id of each as text, or null where a job with its unique key waits already.
create function "{schema}".jobs_enqueue(entries json) returns json language plpgsql
set search_path = "{schema}", pg_temp as $function$
declare
  asked_at timestamptz := clock_timestamp();
  answer json;
  woken text[];
begin
  with entry as materialized (
    select nextval('job_ids') as id, e.*, coalesce(e.run_at, asked_at + e.delay_ms * interval '1 ms') as due_at
    from json_to_recordset(entries) as e (
      position integer, name text, payload text, priority smallint, unique_key text, group_key text, max_attempts integer,
      backoff_ms bigint, max_backoff_ms bigint, delay_ms bigint, run_at timestamptz
    )
  ), inserted as (
    insert into jobs (
      id, name, state, priority, payload, unique_key, group_key, max_attempts, backoff_ms, max_backoff_ms, due_at, enqueued_at
    )
    select id, name, case when due_at > asked_at then 'delayed' else 'ready' end, priority, payload::json, unique_key, group_key,
      max_attempts, backoff_ms, max_backoff_ms, case when due_at > asked_at then due_at end, asked_at
    from entry
    on conflict (name, unique_key) where unique_key is not null and state <> 'running' do nothing
    returning id, name, due_at
  )
  select json_agg(inserted.id::text order by position),
    -- Workers that sleep look at the next due time every few seconds; what is due before that has to be told.
    array_agg(distinct inserted.name) filter (
      where inserted.id is not null and (inserted.due_at is null or inserted.due_at < asked_at + interval '10 s')
    )
  into answer, woken
  from entry left join inserted on inserted.id = entry.id;
  perform pg_notify('holdfast_jobs', name) from unnest(woken) as name;
  return answer;
end
$function$;

-- The advisory lock by which claims and ends of one group take turns.
create function "{schema}".jobs_group_lock(group_key text) returns bigint language sql immutable as $function$
  select hashtextextended('holdfast jobs ' || group_key, 0)
$function$;

-- Lets the first waiting job of each group be claimed. The caller has the groups' locks.
create function "{schema}".jobs_unblock(groups text[]) returns void language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  woken text[];
begin
  with head as (
    select first.id from unnest(groups) as g (group_key) cross join lateral (
      select j.id, j.state from jobs j
      where j.group_key = g.group_key and j.state in ('ready', 'blocked') order by j.priority desc, j.id limit 1
    ) first where first.state = 'blocked'
  ), unblocked as (
    update jobs j set state = 'ready' from head where j.id = head.id and j.state = 'blocked' returning j.name
  )
  select array_agg(distinct name) into woken from unblocked;
  perform pg_notify('holdfast_jobs', name) from unnest(woken) as name;
end
$function$;

-- Moves a job that is not over to those that are. The caller has its row, and its group's lock.
create function "{schema}".jobs_finish(finished bigint, outcome text, reason text) returns void language sql
set search_path = "{schema}", pg_temp as $function$
  with gone as (delete from jobs where id = finished returning *)
  insert into finished_jobs (
    id, name, state, priority, payload, unique_key, group_key, attempt, failures, max_attempts, backoff_ms, max_backoff_ms,
    enqueued_at, started_at, finished_at, worker, error
  )
  select id, name, outcome, priority, payload, unique_key, group_key, attempt, failures, max_attempts, backoff_ms,
    max_backoff_ms, enqueued_at, started_at, clock_timestamp(), worker, reason
  from gone
$function$;

create function "{schema}".jobs_put_back(job "{schema}".jobs) returns void language sql
set search_path = "{schema}", pg_temp as $function$
  update jobs set state = job.state, due_at = job.due_at, failures = job.failures, error = job.error where id = job.id
$function$;

-- Ends an attempt that did not complete its job: a retry, or death. The caller has the lock of its group, if it has one,
-- and unblocks the group. reason is null when the job is given back unharmed, which does not count as a failure.
-- Answers ready, delayed, dead, or superseded (a newer job with its unique key waits, and stands for both), and null when the
-- attempt is not the one that runs.
create function "{schema}".jobs_end_attempt(ended bigint, ended_attempt integer, reason text, retry boolean, retry_in_ms bigint)
returns text language plpgsql set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  job jobs;
  failed integer := case when reason is null then 0 else 1 end;
  delay_ms double precision;
begin
  select * into job from jobs where id = ended and attempt = ended_attempt and state = 'running' for update;
  if not found then
    return null;
  end if;
  if failed = 1 and (not retry or job.failures + 1 >= job.max_attempts) then
    update jobs set failures = failures + 1 where id = ended;
    perform jobs_finish(ended, 'dead', reason);
    return 'dead';
  end if;
  delay_ms := case
    when failed = 0 then 0
    when retry_in_ms is not null then retry_in_ms
    -- Between half of it and the whole, so that jobs that failed together do not come back together.
    else least(job.max_backoff_ms, job.backoff_ms * power(2, least(job.failures, 40))) * (0.5 + random() / 2)
  end;
  job.state := case when delay_ms > 0 then 'delayed' else 'ready' end;
  job.due_at := case when delay_ms > 0 then clock_timestamp() + delay_ms * interval '1 ms' end;
  job.failures := job.failures + failed;
  job.error := coalesce(reason, job.error);
  if job.unique_key is null then
    perform jobs_put_back(job);
  else
    begin
      perform jobs_put_back(job);
    exception when unique_violation then
      update jobs set failures = job.failures where id = ended;
      perform jobs_finish(ended, 'superseded', job.error);
      return 'superseded';
    end;
  end if;
  if delay_ms < 10000 then
    perform pg_notify('holdfast_jobs', job.name);
  end if;
  return job.state;
end
$function$;

-- Ends attempts: of the jobs that are done, in order of their ids, with their attempts, and of others:
-- [{ id, attempt, reason, retry, retry_in_ms }], without reason when it is given back unharmed.
-- Answers { lost: [id], outcomes: [...] }: the done ones whose attempt was not the one that runs, so that nothing was changed, and
-- what became of each of the others, null for the same. Asked again after a lost answer, a job that is kept is not lost.
create function "{schema}".jobs_settle(done bigint[], attempts integer[], others json, keeps_completed boolean)
returns json language plpgsql set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  groups text[];
  completed bigint[];
  lost json := '[]';
  other record;
  outcomes jsonb := '[]';
begin
  -- Hidden from the planner: its statistics mostly know of no running jobs, so it would take a partial index and read them all.
  select array_agg(distinct group_key) into groups from jobs
  where id = any (done || array(select e.id from json_to_recordset(others) as e (id bigint)))
    and group_key is not null and coalesce(state = 'running', false);
  if groups is not null then
    perform pg_advisory_xact_lock(key) from (
      select distinct jobs_group_lock(g) as key from unnest(groups) as g order by key
    ) keys;
  end if;

  with gone as (
    delete from jobs
    where id = any (done) and attempt = attempts[width_bucket(id, done)] and coalesce(state = 'running', false)
    returning *
  ), kept as (
    insert into finished_jobs (
      id, name, state, priority, payload, unique_key, group_key, attempt, failures, max_attempts, backoff_ms, max_backoff_ms,
      enqueued_at, started_at, finished_at, worker, error
    )
    select id, name, 'completed', priority, payload, unique_key, group_key, attempt, failures, max_attempts, backoff_ms,
      max_backoff_ms, enqueued_at, started_at, clock_timestamp(), worker, error
    from gone where keeps_completed
  )
  select array_agg(id) into completed from gone;
  if cardinality(done) > coalesce(cardinality(completed), 0) then
    select coalesce(json_agg(d.id::text), '[]') into lost from unnest(done, attempts) as d (id, attempt)
    where not exists (select from unnest(completed) as c (id) where c.id = d.id) and not exists (
      select from finished_jobs f where f.id = d.id and f.attempt = d.attempt and f.state = 'completed'
    );
  end if;

  for other in
    select * from json_to_recordset(others) as e (
      id bigint, attempt integer, reason text, retry boolean, retry_in_ms bigint
    )
  loop
    outcomes := outcomes || coalesce(
      to_jsonb(jobs_end_attempt(other.id, other.attempt, other.reason, other.retry, other.retry_in_ms)), 'null'
    );
  end loop;

  if groups is not null then
    perform jobs_unblock(groups);
  end if;
  return json_build_object('lost', lost, 'outcomes', outcomes);
end
$function$;

-- Makes ready what is due, and ends the attempts of workers that were not heard of in time. Claims begin with it where
-- something is due, so nobody else has to. Answers whether there may be more.
create function "{schema}".jobs_wake(asked_at timestamptz) returns boolean language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  woken text[];
  lost record;
  seen integer := 0;
begin
  with due as (
    select id from jobs where state = 'delayed' and due_at <= asked_at order by due_at limit 1000 for update skip locked
  ), ready as (
    update jobs j set state = 'ready', due_at = null from due where j.id = due.id returning j.name
  )
  select array_agg(distinct name), count(*) into woken, seen from ready;
  perform pg_notify('holdfast_jobs', name) from unnest(woken) as name;
  for lost in
    select id, attempt, group_key, worker from jobs where state = 'running' and due_at <= asked_at order by due_at limit 100
  loop
    -- Tried, because rows are locked already; who is at this group now, or at this job, leaves it to the next claim.
    continue when lost.group_key is not null and not pg_try_advisory_xact_lock(jobs_group_lock(lost.group_key));
    perform from jobs where id = lost.id and attempt = lost.attempt and state = 'running' and due_at <= asked_at
      for update skip locked;
    continue when not found;
    perform jobs_end_attempt(
      lost.id, lost.attempt, format('The worker %s was not heard of within its lease.', lost.worker), true, null
    );
    if lost.group_key is not null then
      perform jobs_unblock(array[lost.group_key]);
    end if;
  end loop;
  return seen = 1000;
end
$function$;

-- Claims up to wanted jobs of the names handled, for term_ms. known is null, or the jobs that the claimant knows it has:
-- what it has beyond them is delivered once more, because the answer that brought it was lost.
-- Answers { jobs: [...], again_ms }: after how long asking again may bring more, null when no time is known.
create function "{schema}".jobs_claim(handled text[], wanted integer, claimant text, term_ms bigint, known bigint[])
returns json language plpgsql set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  asked_at timestamptz := clock_timestamp();
  more boolean := false;
  taken bigint[];
  grouped boolean;
  refused bigint[];
  leased_until timestamptz;
  again_ms double precision;
  answer json;
begin
  if exists (select from jobs where state in ('delayed', 'running') and due_at <= asked_at) then
    more := jobs_wake(asked_at);
  end if;

  select array_agg(c.id), bool_or(c.group_key is not null) into taken, grouped
  from (
    select j.* from unnest(handled) as h (name) cross join lateral (
      select r.id, r.priority, r.group_key from jobs r where r.state = 'ready' and r.name = h.name
      order by r.priority desc, r.id limit wanted for update skip locked
    ) j order by j.priority desc, j.id limit wanted
  ) c;
  more := more or cardinality(taken) = wanted;
  if grouped then
    refused := jobs_refuse_groups(taken);
  end if;

  leased_until := clock_timestamp() + term_ms * interval '1 ms';
  with running as (
    update jobs j set state = 'running', attempt = j.attempt + 1, started_at = asked_at, worker = claimant, due_at = leased_until
    where j.id = any (taken) and j.state = 'ready' and (refused is null or not (j.id = any (refused)))
    returning j.*
  ), again as (
    update jobs j set due_at = leased_until
    where known is not null and j.state = 'running' and j.worker = claimant and not (j.id = any (known))
    returning j.*
  )
  select json_agg(json_build_object(
    'id', id::text, 'name', name, 'payload', payload, 'priority', priority, 'key', unique_key, 'group', group_key,
    'attempt', attempt, 'failures', failures, 'maxAttempts', max_attempts,
    'enqueuedAt', floor(date_part('epoch', enqueued_at) * 1000)::bigint
  ) order by priority desc, id) into answer
  from (select * from running union all select * from again) claimed;

  if more then
    again_ms := 0;
  else
    select extract(epoch from min(due_at) - clock_timestamp()) * 1000 into again_ms
    from jobs where state in ('delayed', 'running') and due_at > asked_at;
    -- Somebody else is at one of these groups at this very moment.
    if cardinality(refused) > 0 then
      again_ms := least(again_ms, 20);
    end if;
  end if;
  return json_build_object('jobs', coalesce(answer, '[]'), 'again_ms', case when again_ms > 0 then ceil(again_ms) else again_ms end);
end
$function$;

-- Of jobs that the caller has locked, blocks those whose turn in their groups comes later, and answers those whose groups
-- somebody else is at.
create function "{schema}".jobs_refuse_groups(taken bigint[]) returns bigint[] language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  candidate record;
  head record;
  refused bigint[] := '{}';
  blocked bigint[] := '{}';
begin
  for candidate in
    select id, group_key from jobs where id = any (taken) and group_key is not null order by priority desc, id
  loop
    if not pg_try_advisory_xact_lock(jobs_group_lock(candidate.group_key)) then
      refused := refused || candidate.id;
      continue;
    end if;
    -- A statement of its own, after the lock: so it sees what the last one who had the lock has done.
    select id, state, exists (
      select from jobs r where r.group_key = candidate.group_key and r.state = 'running'
    ) as running into head
    from jobs where group_key = candidate.group_key and state in ('ready', 'blocked') order by priority desc, id limit 1;
    continue when head.id = candidate.id and not head.running;
    blocked := blocked || candidate.id;
    if head.state = 'blocked' and not head.running then
      perform jobs_unblock(array[candidate.group_key]);
    end if;
  end loop;
  update jobs set state = 'blocked' where id = any (blocked);
  return refused;
end
$function$;

-- Prolongs leases: [{ id, attempt }]. Answers { gone: [id], skipped: [id] }: whose attempt no longer runs, and whose row
-- somebody is just changing, so that it has to be asked again.
create function "{schema}".jobs_renew(entries json, term_ms bigint) returns json language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  renewed bigint[];
  answer json;
begin
  with held as (
    select j.id from json_to_recordset(entries) as e (id bigint, attempt integer)
    join jobs j on j.id = e.id and j.attempt = e.attempt and coalesce(j.state = 'running', false)
    for update of j skip locked
  ), prolonged as (
    update jobs j set due_at = clock_timestamp() + term_ms * interval '1 ms' from held where j.id = held.id returning j.id
  )
  select array_agg(id) into renewed from prolonged;
  select json_build_object(
    'gone', coalesce(json_agg(e.id::text) filter (where j.id is null), '[]'),
    'skipped', coalesce(json_agg(e.id::text) filter (where j.id is not null and not e.id = any (coalesce(renewed, '{}'))), '[]')
  ) into answer
  from json_to_recordset(entries) as e (id bigint, attempt integer)
  left join jobs j on j.id = e.id and j.attempt = e.attempt and coalesce(j.state = 'running', false);
  return answer;
end
$function$;

-- Ends a job that is not over. Answers the state that it was in, and null when there is no such job.
create function "{schema}".jobs_cancel(cancelled bigint, reason text) returns text language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  job jobs;
begin
  perform pg_advisory_xact_lock(jobs_group_lock(group_key)) from jobs where id = cancelled and group_key is not null;
  select * into job from jobs where id = cancelled for update;
  if not found then
    return null;
  end if;
  perform jobs_finish(cancelled, 'cancelled', reason);
  if job.group_key is not null then
    perform jobs_unblock(array[job.group_key]);
  end if;
  return job.state;
end
$function$;

-- Makes jobs that are over, but not completed, ready again. Those whose unique key another waiting job has are left alone.
-- Answers an array with the ids of those that are ready now.
create function "{schema}".jobs_retry(retried bigint[]) returns json language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  answer json;
  woken text[];
begin
  with again as (
    insert into jobs (
      id, name, state, priority, payload, unique_key, group_key, attempt, failures, max_attempts, backoff_ms, max_backoff_ms,
      enqueued_at, started_at, worker, error
    )
    select id, name, 'ready', priority, payload, unique_key, group_key, attempt, 0, max_attempts, backoff_ms, max_backoff_ms,
      enqueued_at, started_at, worker, error
    from finished_jobs where id = any (retried) and state <> 'completed' order by id for update
    on conflict do nothing
    returning id, name
  ), gone as (
    delete from finished_jobs f using again where f.id = again.id
  )
  select coalesce(json_agg(id::text order by id), '[]'), array_agg(distinct name) into answer, woken from again;
  perform pg_notify('holdfast_jobs', name) from unnest(woken) as name;
  return answer;
end
$function$;

-- Forgets jobs that are over. Answers an array with the ids of those that were there.
create function "{schema}".jobs_remove(removed bigint[]) returns json language sql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
  with gone as (delete from finished_jobs where id = any (removed) returning id)
  select coalesce(json_agg(id::text order by id), '[]') from gone
$function$;

-- Deletes up to 1,000 jobs each that have been over for longer than a time (null: keeps them), and unblocks groups in which nobody
-- is before the blocked ones: transactions that cannot see what others commit meanwhile may leave them so.
-- Answers whether there may be more to do. One at a time; the others have nothing to do.
create function "{schema}".jobs_tidy(completed_ms bigint, ended_ms bigint) returns boolean language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  deleted_completed integer;
  deleted_ended integer;
  stuck record;
begin
  if not pg_try_advisory_xact_lock(hashtextextended('holdfast tidies jobs', 0)) then
    return false;
  end if;
  delete from finished_jobs where id in (
    select id from finished_jobs
    where state = 'completed' and finished_at < (select clock_timestamp() - completed_ms * interval '1 ms')
    limit 1000 for update skip locked
  );
  get diagnostics deleted_completed = row_count;
  delete from finished_jobs where id in (
    select id from finished_jobs
    where state <> 'completed' and finished_at < (select clock_timestamp() - ended_ms * interval '1 ms')
    limit 1000 for update skip locked
  );
  get diagnostics deleted_ended = row_count;
  for stuck in
    with recursive waiting as (
      (select group_key from jobs where group_key is not null and state in ('ready', 'blocked') order by group_key limit 1)
      union all
      select (
        select j.group_key from jobs j
        where j.group_key > w.group_key and j.state in ('ready', 'blocked') order by j.group_key limit 1
      ) from waiting w where w.group_key is not null
    )
    select w.group_key from waiting w
    where exists (select from jobs j where j.group_key = w.group_key and j.state = 'blocked')
      and not exists (select from jobs j where j.group_key = w.group_key and j.state in ('ready', 'running'))
  loop
    continue when not pg_try_advisory_xact_lock(jobs_group_lock(stuck.group_key));
    perform jobs_unblock(array[stuck.group_key]);
  end loop;
  return deleted_completed = 1000 or deleted_ended = 1000;
end
$function$;
