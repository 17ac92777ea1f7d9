-- The functions of the jobs, version 1: how attempts end.
-- Inputs: none; "{schema}" is replaced by the name of the schema.
-- Result: none.

-- The advisory lock under which one transaction at a time claims or settles jobs of a group.
create function "{schema}".jobs_group_lock(group_key text) returns bigint language sql immutable as $function$
  select hashtextextended('holdfast jobs ' || group_key, 0)
$function$;

-- The waiting jobs of a group that may run beside those that run, once so many of these have ended, in order. The caller has the group's lock.
create function "{schema}".jobs_group_next(of_group text, ending bigint default 0)
returns table (id bigint, name text, state text) language sql stable
as $function$
  select placed.id, placed.name, placed.state
  from (
    select first.*, row_number() over in_order as place, min(first.group_limit) over in_order as lowest_limit
    from (
      select w.* from "{schema}".jobs w where w.group_key = of_group and w.state in ('ready', 'blocked')
      order by w.priority desc, w.id
      -- No more than the first one allows.
      limit (
        select h.group_limit from "{schema}".jobs h where h.group_key = of_group and h.state in ('ready', 'blocked')
        order by h.priority desc, h.id limit 1
      )
    ) first window in_order as (order by first.priority desc, first.id rows unbounded preceding)
  ) placed
  cross join (
    select count(*) as jobs, min(r.group_limit) as lowest_limit from "{schema}".jobs r
    where r.group_key = of_group and r.state = 'running'
  ) running
  where greatest(running.jobs - ending, 0) + placed.place <= least(placed.lowest_limit, running.lowest_limit)
$function$;

-- Locks the blocked jobs of a group that may run once so many jobs of the group have ended. Answers whether no other transaction has locked
-- any of these. If one has, because it changes the job, nothing of the group may end now: the next job could not be made
-- ready, and nobody would do it later. The caller has the group's lock.
create function "{schema}".jobs_lock_next(of_group text, ending bigint) returns boolean language sql
as $function$
  with next as (
    select id from "{schema}".jobs_group_next(of_group, ending) where state = 'blocked'
  ), locked as (
    select j.id from "{schema}".jobs j where j.id = any (array(select id from next)) for no key update skip locked
  )
  select (select count(*) from next) = (select count(*) from locked)
$function$;

-- Waits for the locks of the groups, and locks their next jobs. Answers whether no other transaction has locked any of these.
create function "{schema}".jobs_lock_groups(groups text[], ending bigint) returns boolean language plpgsql
set search_path = "{schema}", pg_temp as $function$
begin
  perform pg_advisory_xact_lock(key) from (
    select distinct jobs_group_lock(g) as key from unnest(groups) as g order by key
  ) keys;
  return not exists (select from unnest(groups) as g where not jobs_lock_next(g, ending));
end
$function$;

-- The same for a transaction of the caller's, which cannot come back later: waits for the next jobs, too. Another transaction that has
-- locked one of these may need the lock of the group before it can commit. So the locks that this call took are given up during that wait.
create function "{schema}".jobs_lock_patiently(groups text[], ending bigint) returns void language plpgsql
set search_path = "{schema}", pg_temp as $function$
begin
  loop
    begin
      exit when jobs_lock_groups(groups, ending);
      raise exception using errcode = 'ZF004', message = 'a next job is locked';
    exception when sqlstate 'ZF004' then
      -- The error has given up the locks.
    end;
    begin
      perform from jobs where id = any (array(
        select n.id from unnest(groups) as g cross join lateral jobs_group_next(g, ending) n where n.state = 'blocked'
      )) order by id for no key update;
      raise exception using errcode = 'ZF004', message = 'the next jobs were free for a moment';
    exception when sqlstate 'ZF004' then
      -- These locks, too: whoever has the group by now may need them.
    end;
  end loop;
end
$function$;

-- Makes the waiting jobs of each group ready that may run now. Leaves jobs blocked that another transaction has locked. Answers whether
-- there were none of these. The caller has the groups' locks.
create function "{schema}".jobs_unblock(groups text[]) returns boolean language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  woken text[];
  blocked bigint[];
  changed bigint;
begin
  -- Also the names of jobs that were ready already: claims have passed them over while their group was locked.
  select array_agg(distinct n.name), array_agg(n.id) filter (where n.state = 'blocked') into woken, blocked
  from unnest(groups) as g (group_key) cross join lateral "{schema}".jobs_group_next(g.group_key) n;
  with free as (
    select id from jobs where id = any (blocked) and state = 'blocked' for no key update skip locked
  )
  update jobs j set state = 'ready' from free where j.id = free.id;
  get diagnostics changed = row_count;
  perform jobs_notify('holdfast_jobs', name) from unnest(woken) as name;
  return changed = coalesce(cardinality(blocked), 0);
end
$function$;

-- Moves a job to the table of jobs that have ended, as the record says. The caller has locked its row and its group.
create function "{schema}".jobs_end(job "{schema}".jobs, outcome text, reason text) returns void language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
begin
  delete from jobs where id = job.id;
  insert into ended_jobs (
    id, name, state, priority, payload, unique_key, holds_key, key_until, group_key, group_limit, attempt, failures, max_attempts, backoff_ms,
    max_backoff_ms, enqueued_at, started_at, ended_at, worker, trace, error, failed_attempts, progress, children,
    if_child_fails, tell_at
  )
  values (
    job.id, job.name, outcome, job.priority, job.payload, job.unique_key, job.holds_key,
    -- A job that was cancelled or superseded leaves its key to the next one.
    case when outcome = 'dead' then job.key_until end,
    job.group_key, job.group_limit, job.attempt, job.failures, job.max_attempts, job.backoff_ms, job.max_backoff_ms, job.enqueued_at,
    job.started_at, clock_timestamp(), job.worker, job.trace, reason, job.failed_attempts, job.progress,
    job.children, job.if_child_fails, case when jobs_followed(array[job.id]) <> '{}' then clock_timestamp() end
  );
end
$function$;

-- Puts a job back for another attempt. If an open transaction has enqueued the same name and unique key, waits for its end.
create function "{schema}".jobs_put_back(job "{schema}".jobs) returns void language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
begin
  update jobs
  set state = job.state, due_at = job.due_at, ready_at = job.ready_at, failures = job.failures, error = job.error,
    failed_attempts = job.failed_attempts, overdue = false
  where id = job.id;
end
$function$;

-- The same, but fails with lock_not_available after 20 ms: the caller holds locks that others wait for.
create function "{schema}".jobs_put_back_soon(job "{schema}".jobs) returns void language plpgsql
set search_path = "{schema}", pg_temp set lock_timeout = '20ms' as $function$
begin
  perform jobs_put_back(job);
end
$function$;

-- Ends an attempt that did not complete its job. If the job has a group, the caller has locked the group, and unblocks it.
-- reason is null when the job is given back unharmed, which does not count as a failure.
-- Answers
--   ready or delayed   there will be another attempt
--   dead
--   superseded         a newer job with its unique key waits, and stands for both
--   null               the attempt is not the one that runs. But if it ended for the same reason, its answer was lost and the
--                      caller asks again: then what became of the job
--   busy               only if patient is false: another transaction has locked the job, or has enqueued its unique key and is
--                      open. Nothing was changed
create function "{schema}".jobs_end_attempt(
  ended bigint, ended_attempt integer, reason text, retry boolean, retry_in_ms bigint, patient boolean
) returns text language plpgsql set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  job jobs;
  failed integer := case when reason is null then 0 else 1 end;
  delay_ms double precision;
  before text;
begin
  -- coalesce as in jobs_complete: with a partial index, each of these would read all running jobs.
  if patient then
    select * into job from jobs where id = ended and attempt = ended_attempt and coalesce(state = 'running', false) for update;
  else
    select * into job from jobs where id = ended and attempt = ended_attempt and coalesce(state = 'running', false) for update skip locked;
  end if;
  if not found then
    if not patient and exists (select from jobs where id = ended and attempt = ended_attempt and coalesce(state = 'running', false)) then
      return 'busy';
    end if;
    select case state when 'blocked' then 'ready' else state end into before from (
      select state from jobs where id = ended and attempt = ended_attempt and error = reason and state <> 'running'
      union all
      select state from ended_jobs
      where id = ended and attempt = ended_attempt and error = reason and state in ('dead', 'superseded')
    ) same;
    return before;
  end if;
  if failed = 1 then
    job.failed_attempts := case
      when jsonb_array_length(job.failed_attempts) >= 100 then job.failed_attempts - 0
      else coalesce(job.failed_attempts, '[]')
    end || jsonb_build_object(
      'attempt', job.attempt, 'worker', job.worker, 'startedAt', floor(extract(epoch from job.started_at) * 1000),
      'endedAt', floor(extract(epoch from clock_timestamp()) * 1000), 'error', reason
    );
    if not retry or job.failures + 1 >= job.max_attempts then
      job.failures := job.failures + 1;
      perform jobs_end(job, 'dead', reason);
      return 'dead';
    end if;
  end if;
  delay_ms := case
    when failed = 0 then 0
    when retry_in_ms is not null then retry_in_ms
    -- Between a half and the whole of the backoff, so that jobs that failed together do not come back together.
    else least(job.max_backoff_ms, job.backoff_ms * power(2, least(job.failures, 40))) * (0.5 + random() / 2)
  end;
  job.state := case when delay_ms > 0 then 'delayed' else 'ready' end;
  job.due_at := case when delay_ms > 0 then clock_timestamp() + delay_ms * interval '1 ms' end;
  job.ready_at := coalesce(job.due_at, clock_timestamp());
  job.failures := job.failures + failed;
  job.error := coalesce(reason, job.error);
  if job.unique_key is null then
    perform jobs_put_back(job);
  else
    begin
      if patient then
        perform jobs_put_back(job);
      else
        perform jobs_put_back_soon(job);
      end if;
    exception when lock_not_available then
      return 'busy';
    when unique_violation then
      perform jobs_end(job, 'superseded', job.error);
      return 'superseded';
    end;
  end if;
  if delay_ms < 10000 then
    perform jobs_notify('holdfast_jobs', job.name);
  end if;
  return job.state;
end
$function$;

-- Completes those of the attempts that run and that no other transaction has locked, and answers the ids. ids and attempts are a part of
-- done, which results belongs to. For jobs_settle, whose settings apply.
create function "{schema}".jobs_complete(
  ids bigint[], attempts integer[], done bigint[], results text[], keeps_completed boolean
) returns bigint[] language plpgsql as $function$
declare
  completed bigint[];
begin
  with held as (
    select ctid as place from jobs
    -- If there are several attempts of a job, width_bucket finds the last one. No earlier one can be the one that
    -- runs. coalesce hides the state from the planner. Its statistics mostly know of no running jobs, so it would
    -- choose a partial index and read all of them.
    where id = any (ids) and attempt = attempts[width_bucket(id, ids)] and coalesce(state = 'running', false)
    for update skip locked
  ), gone as (
    delete from jobs where ctid = any (array(select place from held)) returning *
  ), followed as materialized (
    -- Reads all of these first, so they are locked by then.
    select jobs_followed(array(select id from gone)) as ids
  ), kept as (
    insert into ended_jobs (
      id, name, state, priority, payload, unique_key, holds_key, key_until, group_key, group_limit, attempt, failures, max_attempts,
      backoff_ms, max_backoff_ms, enqueued_at, started_at, ended_at, worker, trace, error, failed_attempts, progress, result,
      children, if_child_fails, tell_at
    )
    select id, name, 'completed', priority, payload, unique_key, holds_key, key_until, group_key, group_limit, attempt, failures,
      max_attempts, backoff_ms, max_backoff_ms, enqueued_at, started_at, clock_timestamp(), worker, trace, error,
      failed_attempts, progress, results[width_bucket(id, done)]::json, children, if_child_fails,
      case when id = any (followed.ids) then clock_timestamp() end
    from gone cross join followed
    where keeps_completed or key_until > clock_timestamp() or id = any (followed.ids)
  )
  select array_agg(id) into completed from gone;
  return completed;
end
$function$;

-- Ends attempts.
--   done, attempts   the jobs that are done and their attempts, in order of both
--   results          null, or the result of each done job as JSON
--   groups           the groups of all these jobs
--   others           null, or [{ id, attempt, group, reason, retry, retry_in_ms }], as for jobs_end_attempt
--   patient          whether to wait for other transactions. If not, what cannot be locked within 20 ms is busy. Otherwise a
--                    transaction that stays open would hold up the jobs of others
-- Answers { lost: [{ id, attempt }], busy: [{ id, attempt }], outcomes: [...] }.
--   lost       the done attempts that are not the ones that run. Nothing was changed. A completed job that is kept is not lost
--              when the caller asks again after a lost answer
--   busy       the done attempts whose job or group another transaction has locked. Nothing was changed. Ask again
--   outcomes   what jobs_end_attempt answers for each of the others, and busy if another transaction has locked the group. After
--              a busy one, the others that have a unique key are busy without a try, so that the done jobs do not wait for each of
--              them. Ask the busy ones again, in a call of their own
create function "{schema}".jobs_settle(
  done bigint[], attempts integer[], results text[], groups text[], others json, keeps_completed boolean, patient boolean
) returns json language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  completed bigint[];
  -- The done jobs without those that are busy.
  free bigint[] := done;
  free_attempts integer[] := attempts;
  -- Groups that another transaction has locked, or whose next job it has locked.
  held text[] := '{}';
  ending bigint := coalesce(cardinality(done), 0) + coalesce(json_array_length(others), 0);
  lock_limit text := current_setting('lock_timeout');
  lost json := '[]';
  busy json := '[]';
  other record;
  outcome text;
  is_busy boolean := false;
  outcomes jsonb := '[]';
begin
  if groups = '{}' and done <> '{}' and not patient then
    -- Mostly this is all, and it waits for no other transaction. The locks and the limit below would cost more than it does.
    completed := jobs_complete(done, attempts, done, results, keeps_completed);
    if cardinality(completed) = cardinality(done) and others is null then
      return '{"lost":[],"busy":[],"outcomes":[]}';
    end if;
    select coalesce(array_agg(id), '{}'), array_agg(attempt) into free, free_attempts from (
      select id, attempt from unnest(done, attempts) as pair (id, attempt)
      where not (id = any (coalesce(completed, '{}')) and attempt = attempts[width_bucket(id, done)]) order by id, attempt
    ) rest;
  end if;
  if not patient then
    -- Before the limit applies: a vacuum or a migration may have the tables for longer, and then nothing can be settled.
    lock table jobs, ended_jobs in row exclusive mode;
  end if;
  for round in 1..2 loop
    begin
      if not patient then
        perform set_config('lock_timeout', '20ms', true);
      end if;
      if groups <> '{}' then
        if patient then
          perform jobs_lock_patiently(groups, ending);
        elsif not jobs_lock_groups(groups, ending) then
          raise lock_not_available;
        end if;
      end if;
      if free <> '{}' then
        perform from jobs
        where id = any (free) and attempt = free_attempts[width_bucket(id, free)] and coalesce(state = 'running', false)
        order by id for update;
      end if;
      if not patient then
        perform set_config('lock_timeout', lock_limit, true);
      end if;
      if free <> '{}' then
        -- It waits for no row. The limit would also hold for the lock under which a table grows.
        completed := completed || jobs_complete(free, free_attempts, done, results, keeps_completed);
      end if;
      exit;
    exception when lock_not_available then
      if patient or round = 2 then
        raise;
      end if;
      -- The error has undone this round. The second one has only what no other transaction has locked.
      held := array(
        select g from unnest(groups) as g where not pg_try_advisory_xact_lock(jobs_group_lock(g)) or not jobs_lock_next(g, ending)
      );
      groups := array(select g from unnest(groups) as g where g <> all (held));
      select coalesce(array_agg(id), '{}'), array_agg(attempt) into free, free_attempts from (
        select id, attempt from jobs
        where id = any (done) and attempt = attempts[width_bucket(id, done)] and coalesce(state = 'running', false)
          and (group_key is null or group_key <> all (held))
        order by id for update skip locked
      ) unlocked;
    end;
  end loop;

  completed := coalesce(completed, '{}');
  if cardinality(done) > cardinality(completed) then
    -- A query of its own for each of these: joined, they could cost a look through all jobs that have ended.
    select coalesce(json_agg(d.answer) filter (where not d.runs), '[]'), coalesce(json_agg(d.answer) filter (where d.runs), '[]')
    into lost, busy
    from (
      select json_build_object('id', p.id::text, 'attempt', p.attempt) as answer,
        coalesce((select j.state = 'running' and j.attempt = p.attempt from jobs j where j.id = p.id), false) as runs
      from unnest(done, attempts) as p (id, attempt)
      where not (p.id = any (completed) and p.attempt = attempts[width_bucket(p.id, done)])
        and not coalesce((select f.state = 'completed' and f.attempt = p.attempt from ended_jobs f where f.id = p.id), false)
    ) d;
  end if;

  if others is not null then
    for other in
      select * from json_to_recordset(others) as e (
        id bigint, attempt integer, "group" text, reason text, retry boolean, retry_in_ms bigint
      )
    loop
      outcome := case
        when other."group" = any (held) then 'busy'
        when is_busy and exists (select from jobs where id = other.id and unique_key is not null) then 'busy'
        else jobs_end_attempt(other.id, other.attempt, other.reason, other.retry, other.retry_in_ms, patient)
      end;
      is_busy := is_busy or outcome is not distinct from 'busy';
      outcomes := outcomes || coalesce(to_jsonb(outcome), 'null');
    end loop;
  end if;

  if groups <> '{}' then
    perform jobs_unblock(groups);
  end if;
  return json_build_object('lost', lost, 'busy', busy, 'outcomes', outcomes);
end
$function$;
