-- The functions of the jobs, version 1: enqueuing.
-- Inputs: none; "{schema}" is replaced by the name of the schema.
-- Result: none.

-- Raises ZF002 unless this transaction has the number `earlier`, which an earlier statement of the caller got.
create function "{schema}".jobs_assert_transaction(earlier text) returns void language plpgsql as $function$
begin
  if pg_current_xact_id_if_assigned()::text is distinct from earlier then
    raise exception using errcode = 'ZF002', message = 'there is no open transaction';
  end if;
end
$function$;

-- Enqueues one job in the caller's transaction, and wakes its workers when it commits.
-- Answers its id, or null if its unique key is taken by another job: by one that waits, and by one that runs and holds its key. Raises
-- 22023 if one of its children is not there.
create function "{schema}".jobs_enqueue_one(
  job_name text, job_payload text, job_priority smallint, own_key text, of_group text, of_group_limit integer, most_attempts integer,
  first_backoff_ms bigint, most_backoff_ms bigint, delay_ms bigint, run_at timestamptz,
  own_holds_key boolean default false, key_ms bigint default null, own_trace text default null,
  own_children bigint[] default null, policy text default null
) returns bigint language plpgsql set search_path = "{schema}", pg_temp set plan_cache_mode = force_generic_plan as $function$
declare
  asked_at timestamptz := clock_timestamp();
  starts_at timestamptz := coalesce(run_at, asked_at + delay_ms * interval '1 ms');
  is_delayed boolean := coalesce(starts_at > asked_at, false);
  is_pending boolean := false;
  absent bigint[];
  enqueued bigint;
  nothing text;
begin
  if own_children is not null then
    absent := jobs_lock_children(own_children);
    if absent <> '{}' then
      perform jobs_refuse_option('children', 'ids of jobs that are there', to_jsonb(absent[1]::text));
    end if;
    is_pending := jobs_waits_for(own_children, policy);
  end if;
  insert into jobs (
    id, name, state, priority, payload, unique_key, holds_key, key_until, group_key, group_limit, max_attempts, backoff_ms,
    max_backoff_ms, due_at, enqueued_at, ready_at, trace, children, if_child_fails
  )
  values (
    nextval('job_ids'), job_name, case when is_pending then 'pending' when is_delayed then 'delayed' else 'ready' end, job_priority,
    job_payload::json, own_key, own_holds_key, asked_at + key_ms * interval '1 ms', of_group, of_group_limit, most_attempts,
    first_backoff_ms, most_backoff_ms, case when is_delayed then starts_at end, asked_at,
    case when is_delayed then starts_at else asked_at end, own_trace, own_children, policy
  )
  on conflict (name, unique_key) where unique_key is not null and (state <> 'running' or holds_key) do nothing
  returning id into enqueued;
  if enqueued is not null and own_children is not null then
    perform jobs_add_children(enqueued, own_children, policy);
  end if;
  -- A worker polls every few seconds. A job that is due before its next poll needs a notification.
  if enqueued is not null and (not is_delayed or starts_at < asked_at + interval '10 s') then
    -- An assignment is no statement of its own, as perform would be.
    nothing := jobs_notify('holdfast_jobs', job_name);
  end if;
  return enqueued;
end
$function$;

-- Enqueues one job whose unique key has rules.
--   own_holds_key   the key stays taken while the job runs
--   key_ms          the key stays taken for this time from now on, even if the job has ended; null: it does not
--   if_taken        keep: a job that has the key stays as it is. update: if it waits, it gets the new payload. postpone: it gets the
--                   new payload, and if it is delayed or pending, it starts when the new one would, or after its children
-- Answers the id of the new or the changed job, or null if neither was possible.
create function "{schema}".jobs_enqueue_unique(
  job_name text, job_payload text, job_priority smallint, own_key text, of_group text, of_group_limit integer, most_attempts integer,
  first_backoff_ms bigint, most_backoff_ms bigint, delay_ms bigint, run_at timestamptz, own_holds_key boolean, key_ms bigint,
  if_taken text, own_trace text default null, own_children bigint[] default null, policy text default null
) returns bigint language plpgsql set search_path = "{schema}", pg_temp set plan_cache_mode = force_generic_plan as $function$
declare
  starts_at timestamptz := coalesce(run_at, clock_timestamp() + coalesce(delay_ms, 0) * interval '1 ms');
  enqueued bigint;
begin
  -- A job that has the key may begin to run between the two statements. Then the first one succeeds at its next try.
  for round in 1..5 loop
    begin
      enqueued := jobs_enqueue_one(
        job_name, job_payload, job_priority, own_key, of_group, of_group_limit, most_attempts, first_backoff_ms, most_backoff_ms,
        delay_ms, run_at, own_holds_key, key_ms, own_trace, own_children, policy
      );
      -- Looks after the insert: a job that ends meanwhile is either in its way or here.
      if enqueued is not null and key_ms is not null and exists (
        select from ended_jobs where name = job_name and unique_key = own_key and key_until > clock_timestamp()
      ) then
        raise exception using errcode = 'ZF003', message = 'the key is taken';
      end if;
    exception when sqlstate 'ZF003' then
      return null;
    end;
    exit when enqueued is not null or if_taken = 'keep';
    update jobs
    set payload = job_payload::json, trace = own_trace,
      due_at = case when if_taken = 'postpone' and state in ('delayed', 'pending') then starts_at else due_at end,
      ready_at = case when if_taken = 'postpone' and state in ('delayed', 'pending') then starts_at else ready_at end
    where name = job_name and unique_key = own_key and state <> 'running'
    returning id into enqueued;
    exit when enqueued is not null;
    exit when exists (select from jobs where name = job_name and unique_key = own_key and state = 'running' and holds_key);
  end loop;
  -- Sent for each change: the job may be due before a worker polls next.
  if if_taken = 'postpone' and enqueued is not null and starts_at < clock_timestamp() + interval '10 s' then
    perform jobs_notify('holdfast_jobs', job_name);
  end if;
  return enqueued;
end
$function$;

-- Enqueues a list of jobs in the caller's transaction, and wakes their workers when it commits. Each payload is a JSON text of its
-- own, because as a part of the list's JSON it could not contain \u0000. If one of the unique keys has rules, or a job has children, the
-- jobs are enqueued one by one. Answers an array with the id of each as text, or null if its unique key is taken.
create function "{schema}".jobs_enqueue(entries json) returns json language plpgsql
set search_path = "{schema}", pg_temp as $function$
declare
  asked_at timestamptz := clock_timestamp();
  answer json;
  woken text[];
begin
  if exists (select from json_to_recordset(entries) as e (if_taken text, children json) where e.if_taken is not null or e.children is not null) then
    return (
      select json_agg(
        jobs_enqueue_unique(
          e.name, e.payload, e.priority, e.unique_key, e.group_key, e.group_limit, e.max_attempts, e.backoff_ms, e.max_backoff_ms,
          e.delay_ms, e.run_at, coalesce(e.holds_key, false), e.key_ms, coalesce(e.if_taken, 'keep'), e.trace,
          e.children, e.if_child_fails
        )::text order by e.position
      )
      from (
        select * from json_to_recordset(entries) as e (
          position integer, name text, payload text, priority smallint, unique_key text, group_key text, group_limit integer,
          max_attempts integer, backoff_ms bigint, max_backoff_ms bigint, delay_ms bigint, run_at timestamptz, holds_key boolean,
          key_ms bigint, if_taken text, trace text, children bigint[], if_child_fails text
        ) order by e.position
      ) e
    );
  end if;
  with entry as materialized (
    select nextval('job_ids') as id, e.*, coalesce(e.run_at, asked_at + e.delay_ms * interval '1 ms') as due_at
    from json_to_recordset(entries) as e (
      position integer, name text, payload text, priority smallint, unique_key text, group_key text, group_limit integer,
      max_attempts integer, backoff_ms bigint, max_backoff_ms bigint, delay_ms bigint, run_at timestamptz, trace text
    )
  ), inserted as (
    insert into jobs (
      id, name, state, priority, payload, unique_key, group_key, group_limit, max_attempts, backoff_ms, max_backoff_ms, due_at,
      enqueued_at, ready_at, trace
    )
    select id, name, case when due_at > asked_at then 'delayed' else 'ready' end, priority, payload::json, unique_key, group_key,
      group_limit, max_attempts, backoff_ms, max_backoff_ms, case when due_at > asked_at then due_at end, asked_at,
      greatest(due_at, asked_at), trace
    -- In the order of the keys, so that two calls with the same keys do not wait for each other.
    from entry order by unique_key collate "C", name collate "C", id
    on conflict (name, unique_key) where unique_key is not null and (state <> 'running' or holds_key) do nothing
    returning id, name, due_at
  )
  select json_agg(inserted.id::text order by position),
    -- A worker polls every few seconds. A job that is due before its next poll needs a notification.
    array_agg(distinct inserted.name) filter (
      where inserted.id is not null and (inserted.due_at is null or inserted.due_at < asked_at + interval '10 s')
    )
  into answer, woken
  from entry left join inserted on inserted.id = entry.id;
  perform jobs_notify('holdfast_jobs', name) from unnest(woken) as name;
  return answer;
end
$function$;
