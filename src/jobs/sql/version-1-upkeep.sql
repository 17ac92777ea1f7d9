-- The functions of the jobs, version 1: for people and for the clean-up.
-- Inputs: none; "{schema}" is replaced by the name of the schema.
-- Result: none.

-- Ends a job that is not over. Answers its state before, or null when there is no such job.
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

-- Makes jobs that are over, but not completed, ready again. Leaves a job alone if another job with its unique key waits.
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

-- Deletes up to 1,000 completed jobs and up to 1,000 others that have been over for longer than a time; null keeps them.
-- Unblocks groups whose jobs are all blocked: a transaction that does not see what others commit meanwhile may leave one so.
-- Answers whether there may be more to do. One call at a time works in a schema; a second one answers false at once.
create function "{schema}".jobs_tidy(completed_ms bigint, ended_ms bigint) returns boolean language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  deleted_completed integer;
  deleted_ended integer;
  stuck record;
begin
  if not pg_try_advisory_xact_lock(hashtextextended('holdfast tidies jobs of ' || current_schema(), 0)) then
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
