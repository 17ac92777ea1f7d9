-- The functions of the jobs, version 2: enqueuing a single job, which is what most callers do.
-- Inputs: none; "{schema}" is replaced by the name of the schema.
-- Result: none.

-- Enqueues one job in the caller's transaction, and wakes its workers when it commits.
-- Answers its id, or null where a job with its unique key waits already.
create function "{schema}".jobs_enqueue_one(
  job_name text, job_payload text, job_priority smallint, own_key text, of_group text, most_attempts integer,
  first_backoff_ms bigint, most_backoff_ms bigint, delay_ms bigint, run_at timestamptz
) returns bigint language plpgsql set search_path = "{schema}", pg_temp set plan_cache_mode = force_generic_plan as $function$
declare
  asked_at timestamptz := clock_timestamp();
  starts_at timestamptz := coalesce(run_at, asked_at + delay_ms * interval '1 ms');
  is_delayed boolean := coalesce(starts_at > asked_at, false);
  enqueued bigint;
begin
  insert into jobs (
    id, name, state, priority, payload, unique_key, group_key, max_attempts, backoff_ms, max_backoff_ms, due_at, enqueued_at
  )
  values (
    nextval('job_ids'), job_name, case when is_delayed then 'delayed' else 'ready' end, job_priority, job_payload::json, own_key,
    of_group, most_attempts, first_backoff_ms, most_backoff_ms, case when is_delayed then starts_at end, asked_at
  )
  on conflict (name, unique_key) where unique_key is not null and state <> 'running' do nothing
  returning id into enqueued;
  -- Workers that sleep look at the next due time every few seconds; what is due before that has to be told.
  if enqueued is not null and (not is_delayed or starts_at < asked_at + interval '10 s') then
    perform pg_notify('holdfast_jobs', job_name);
  end if;
  return enqueued;
end
$function$;
