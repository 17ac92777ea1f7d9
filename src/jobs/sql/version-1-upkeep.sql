-- The functions of the jobs, version 1: for people and for the clean-up.
-- Inputs: none; "{schema}" is replaced by the name of the schema.
-- Result: none.

-- Ends jobs that are in one of the states and have not ended. Waits for no other transaction.
-- Answers { changed: [id], busy: [id] }. busy: another transaction has locked the job or its group. Ask again.
create function "{schema}".jobs_cancel(cancelled bigint[], states text[], reason text) returns json language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  found_id bigint;
  of_group text;
  job jobs;
  -- The groups that this call has locked.
  groups text[];
  -- Groups that another transaction has locked, or whose next job it has locked.
  held text[] := '{}';
  changed bigint[];
  busy bigint[];
begin
  loop
    groups := '{}';
    changed := '{}';
    busy := '{}';
    begin
      for found_id, of_group in
        select id, group_key from jobs where id = any (cancelled) and state = any (states) order by id
      loop
        if of_group <> all (groups || held) then
          if pg_try_advisory_xact_lock(jobs_group_lock(of_group)) then
            groups := groups || of_group;
          else
            held := held || of_group;
          end if;
        end if;
        if of_group = any (held) then
          busy := busy || found_id;
          continue;
        end if;
        select * into job from jobs where id = found_id and state = any (states) for update skip locked;
        if found then
          perform jobs_end(job, 'cancelled', reason);
          if job.state = 'running' then
            -- Its worker renews at once, and so hears of it.
            perform jobs_notify('holdfast_jobs', job.worker);
          end if;
          changed := changed || found_id;
        elsif exists (select from jobs where id = found_id and state = any (states)) then
          busy := busy || found_id;
        end if;
      end loop;
      exit when groups = '{}' or jobs_unblock(groups);
      held := held || array(
        select g from unnest(groups) as g where exists (select from jobs_group_next(g) where state = 'blocked')
      );
      raise exception using errcode = 'ZF004', message = 'a next job is locked';
    exception when sqlstate 'ZF004' then
      -- Undone, because nobody would unblock the next jobs of these groups later. The next round leaves the groups alone.
    end;
  end loop;
  return jobs_changes(changed, busy);
end
$function$;

-- Makes jobs ready again that are in one of the states and have ended, but not completed. Leaves a job alone if another job with its
-- unique key waits. Answers as jobs_cancel. A job is also busy if an open transaction has enqueued its unique key, or has locked
-- one of its children. Each of these costs 20 ms, and after 200 ms the rest is busy without a try, because others may wait for the
-- jobs that are ready already. The untried ones come first in the answer, and jobs are tried in the order of the ids. Parents come
-- last, after their own children, whose ids are smaller: otherwise the old end of a child would count.
create function "{schema}".jobs_retry(retried bigint[], states text[]) returns json language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  until timestamptz := clock_timestamp() + interval '200 ms';
  unlocked bigint[];
  keyed bigint[];
  keyed_id bigint;
  changed bigint[];
  held bigint[] := '{}';
  untried bigint[] := '{}';
  busy bigint[];
begin
  with free as (
    select id, unique_key, children is not null as is_parent from ended_jobs
    where id = any (retried) and state = any (states) and state <> 'completed'
    order by id for update skip locked
  )
  select array_agg(id), array_agg(id order by case when is_parent then id end nulls first, array_position(retried, id))
    filter (where unique_key is not null or is_parent)
  into unlocked, keyed from free;
  select array_agg(id) into busy from ended_jobs
  where id = any (retried) and state = any (states) and state <> 'completed' and id <> all (coalesce(unlocked, '{}'));

  changed := jobs_revive(array(select unnest(unlocked) except select unnest(keyed)));
  foreach keyed_id in array coalesce(keyed, '{}') loop
    if clock_timestamp() > until then
      untried := untried || keyed_id;
      continue;
    end if;
    begin
      changed := changed || jobs_revive_soon(keyed_id);
    exception when lock_not_available then
      held := held || keyed_id;
    end;
  end loop;
  return jobs_changes(array(select unnest(changed) as id order by id), untried || busy || held);
end
$function$;

-- Moves jobs that the caller has locked back to the jobs that have not ended. Answers the ids of those that were moved. If an open
-- transaction has enqueued the same name and unique key, waits for its end.
create function "{schema}".jobs_revive(revived bigint[]) returns bigint[] language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  moved bigint[];
  parent record;
  woken text[];
begin
  with again as (
    insert into jobs (
      id, name, state, priority, payload, unique_key, holds_key, key_until, group_key, group_limit, attempt, failures, max_attempts, backoff_ms,
      max_backoff_ms, enqueued_at, started_at, worker, trace, error, failed_attempts, progress, children, if_child_fails
    )
    select id, name, 'ready', priority, payload, unique_key, holds_key, key_until, group_key, group_limit, attempt, 0, max_attempts, backoff_ms,
      max_backoff_ms, enqueued_at, started_at, worker, trace, error, failed_attempts, progress, children, if_child_fails
    from ended_jobs where id = any (revived) order by id
    on conflict do nothing
    returning id, name
  ), gone as (
    delete from ended_jobs f using again where f.id = again.id
  )
  select array(select id from again), array(select distinct name from again) into moved, woken;
  for parent in select id, children, if_child_fails from jobs where id = any (moved) and children is not null loop
    -- A child that was removed meanwhile is not waited for.
    perform jobs_lock_children(parent.children);
    perform jobs_add_children(parent.id, parent.children, parent.if_child_fails);
    update jobs set state = 'pending' where id = parent.id and jobs_waits_for(parent.children, parent.if_child_fails);
  end loop;
  perform jobs_notify('holdfast_jobs', name) from unnest(woken) as name;
  return moved;
end
$function$;

-- The same for one job, but fails with lock_not_available after 20 ms: the caller holds locks that others wait for.
create function "{schema}".jobs_revive_soon(revived bigint) returns bigint[] language plpgsql
set search_path = "{schema}", pg_temp set lock_timeout = '20ms' as $function$
begin
  return jobs_revive(array[revived]);
end
$function$;

-- Forgets jobs that are in one of the states and have ended, but no children of jobs that have not. Waits for no other transaction. Answers as jobs_cancel.
create function "{schema}".jobs_remove(removed bigint[], states text[]) returns json language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  changed bigint[];
  busy bigint[];
  free bigint[] := array(
    select id from ended_jobs where id = any (removed) and state = any (states) for update skip locked
  );
begin
  -- A statement of its own, so that it sees the parents that were enqueued before these were locked.
  with gone as (
    delete from ended_jobs where id = any (free) and not exists (select from job_children c where c.child = ended_jobs.id) returning id
  )
  select array_agg(id order by id) into changed from gone;
  select array_agg(id) into busy from ended_jobs where id = any (removed) and state = any (states)
    and not exists (select from job_children c where c.child = ended_jobs.id);
  return jobs_changes(changed, busy);
end
$function$;

create function "{schema}".jobs_changes(changed bigint[], busy bigint[]) returns json language sql immutable as $function$
  select json_build_object(
    'changed', coalesce((select json_agg(id::text) from unnest(changed) as id), '[]'),
    'busy', coalesce((select json_agg(id::text) from unnest(busy) as id), '[]')
  )
$function$;

-- Answers whether jobs of the names are left to run: ready, running, and with skips_delays also delayed ones, which it makes due.
-- A blocked or pending job counts by the jobs that it waits for, and a job of a paused name only while it runs.
create function "{schema}".jobs_left(names text[], skips_delays boolean) returns boolean language plpgsql
set search_path = "{schema}", pg_temp as $function$
declare
  woken text[];
begin
  if skips_delays then
    with due as (
      update jobs set due_at = clock_timestamp(), ready_at = clock_timestamp()
      where id in (
        select id from jobs
        where state = 'delayed' and due_at > clock_timestamp() and name = any (names) for update skip locked
      )
      returning name
    )
    select array_agg(distinct name) into woken from due;
    perform jobs_notify('holdfast_jobs', name) from unnest(woken) as name;
  end if;
  return exists (
    select from jobs where name = any (names) and (state in ('ready', 'running') or (skips_delays and state = 'delayed'))
      and (state = 'running' or name not in (select l.name from job_limits l where l.paused))
  ) or exists (
    select from ended_jobs e join job_children c on c.child = e.id join jobs p on p.id = c.parent
    where e.tell_at is not null and p.name = any (names)
  );
end
$function$;

-- Deletes up to 1,000 completed jobs and up to 1,000 others that ended longer ago than a time; null keeps them. A job whose unique key
-- stayed taken counts from when the key was free. Keeps a child of a job that has not ended.
-- Answers whether there may be more to do. One call at a time works in a schema; a second one answers false at once.
-- jit is off, as a plan without an index would look dear enough to be compiled, which takes 0.2 s.
create function "{schema}".jobs_tidy(completed_ms bigint, ended_ms bigint) returns boolean language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $function$
declare
  old bigint[];
  deleted_completed integer;
  deleted_ended integer;
begin
  if not pg_try_advisory_xact_lock(hashtextextended('holdfast tidies jobs of ' || current_schema(), 0)) then
    return false;
  end if;
  -- Locks first, and then deletes in a statement that sees the parents that were enqueued before.
  old := array(
    select id from ended_jobs
    where state = 'completed' and greatest(ended_at, key_until) < (select clock_timestamp() - completed_ms * interval '1 ms')
      and not exists (select from job_children c where c.child = ended_jobs.id)
    order by greatest(ended_at, key_until) limit 1000 for update skip locked
  );
  delete from ended_jobs where id = any (old) and not exists (select from job_children c where c.child = ended_jobs.id);
  get diagnostics deleted_completed = row_count;
  old := array(
    select id from ended_jobs
    where state <> 'completed' and greatest(ended_at, key_until) < (select clock_timestamp() - ended_ms * interval '1 ms')
      and not exists (select from job_children c where c.child = ended_jobs.id)
    order by greatest(ended_at, key_until) limit 1000 for update skip locked
  );
  delete from ended_jobs where id = any (old) and not exists (select from job_children c where c.child = ended_jobs.id);
  get diagnostics deleted_ended = row_count;
  return deleted_completed = 1000 or deleted_ended = 1000;
end
$function$;

-- Unblocks groups whose jobs are all blocked: a transaction that does not see what others commit meanwhile may leave one so. Looks at up
-- to 2,000 groups whose jobs wait: those after the given one, or the first ones if it is null. Answers the last of them, or null if there
-- are no more.
create function "{schema}".jobs_unblock_stuck(after text) returns text language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $function$
declare
  seen text[];
  stuck text[];
  of_group text;
begin
  with recursive waiting as (
    (
      select j.group_key, 1 as n from jobs j
      where j.group_key > coalesce(after, '') and j.state in ('ready', 'blocked') order by j.group_key limit 1
    )
    union all
    select (
      select j.group_key from jobs j
      where j.group_key > w.group_key and j.state in ('ready', 'blocked') order by j.group_key limit 1
    ), w.n + 1 from waiting w where w.group_key is not null and w.n < 2000
  )
  select array_agg(w.group_key), array_agg(w.group_key) filter (
    where exists (select from jobs j where j.group_key = w.group_key and j.state = 'blocked')
      -- Each has an index of its own, and none has both. Mostly one runs, and then the many that are blocked are not read for one that is ready.
      and not exists (select from jobs j where j.group_key = w.group_key and j.state = 'running')
      and not exists (select from jobs j where j.group_key = w.group_key and j.state = 'ready')
  ) into seen, stuck from waiting w where w.group_key is not null;
  foreach of_group in array coalesce(stuck, '{}') loop
    continue when not pg_try_advisory_xact_lock(jobs_group_lock(of_group));
    perform jobs_unblock(array[of_group]);
  end loop;
  return seen[2000];
end
$function$;
