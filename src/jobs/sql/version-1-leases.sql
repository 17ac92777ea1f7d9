-- The functions of the jobs, version 1: leases, and what is due.
-- Inputs: none; "{schema}" is replaced by the name of the schema.
-- Result: none.

-- Makes due jobs ready, and ends attempts whose lease has ended. A claim calls it when something is due, so no other process has
-- to. Answers whether there may be more.
create function "{schema}".jobs_wake(asked_at timestamptz) returns boolean language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  woken text[];
  lost record;
  reason text;
  outcome text;
  -- Another transaction has enqueued the unique key of one of the lost jobs.
  is_busy boolean := false;
  seen integer := 0;
  tried integer := 0;
begin
  with due as (
    select id from jobs where state = 'delayed' and due_at <= asked_at order by due_at limit 1000 for no key update skip locked
  ), ready as (
    update jobs j set state = 'ready', due_at = null from due where j.id = due.id returning j.name
  )
  select array_agg(distinct name), count(*) into woken, seen from ready;
  perform jobs_notify('holdfast_jobs', name) from unnest(woken) as name;
  for lost in
    select id, attempt, unique_key, group_key, worker, ahead from jobs
    where state = 'running' and due_at <= asked_at order by due_at limit 100 for update skip locked
  loop
    tried := tried + 1;
    -- Only tried, because rows are locked already. If another transaction has this group, or its next job, the job is looked at again after
    -- a second. Otherwise a hundred such jobs would be all that any claim looks at. Until then it is overdue: a claim of
    -- its worker does not deliver it once more.
    if lost.group_key is not null and not (
      pg_try_advisory_xact_lock(jobs_group_lock(lost.group_key)) and jobs_lock_next(lost.group_key, 1)
    ) then
      update jobs set due_at = clock_timestamp() + interval '1 s', overdue = true where id = lost.id;
      continue;
    end if;
    -- Each try of a key may take 20 ms, and others wait for what is locked here. The next claims try the others, one by one.
    if is_busy and lost.unique_key is not null then
      update jobs set due_at = clock_timestamp() + interval '200 ms', overdue = true where id = lost.id;
      continue;
    end if;
    reason := format('The worker %s was not heard of within its lease.', lost.worker);
    if lost.ahead then
      -- Given back without a failure, because it may not have begun. The error keeps it from being claimed ahead again, so the
      -- next loss counts: a job that kills its workers does not do so for ever.
      update jobs set error = reason || ' The job was claimed ahead, and may not have begun.' where id = lost.id;
      reason := null;
    end if;
    outcome := jobs_end_attempt(lost.id, lost.attempt, reason, true, null, false);
    if outcome = 'busy' then
      -- Looked at again after a second. Otherwise every claim would wait for the same transaction.
      update jobs set due_at = clock_timestamp() + interval '1 s', overdue = true where id = lost.id;
      is_busy := true;
      continue;
    end if;
    if lost.group_key is not null then
      perform jobs_unblock(array[lost.group_key]);
    end if;
  end loop;
  return seen = 1000 or tried = 100;
end
$function$;

-- Renews leases: [{ id, attempt, begun }]. If a job is begun, it is no longer one that was claimed ahead.
-- Answers { gone: [{ id, attempt }], skipped: [{ id, attempt }] }. gone: the attempt no longer runs. skipped: another transaction
-- is just changing the row, so ask again.
create function "{schema}".jobs_renew(entries json, ttl_ms bigint) returns json language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  renewed bigint[];
  answer json;
begin
  with held as (
    select j.id, e.begun from json_to_recordset(entries) as e (id bigint, attempt integer, begun boolean)
    join jobs j on j.id = e.id and j.attempt = e.attempt and coalesce(j.state = 'running', false)
    for no key update of j skip locked
  ), prolonged as (
    update jobs j set due_at = clock_timestamp() + ttl_ms * interval '1 ms', ahead = j.ahead and not held.begun, overdue = false
    from held where j.id = held.id returning j.id
  )
  select array_agg(id) into renewed from prolonged;
  select json_build_object(
    'gone', coalesce(json_agg(json_build_object('id', e.id::text, 'attempt', e.attempt)) filter (where j.id is null), '[]'),
    'skipped', coalesce(json_agg(json_build_object('id', e.id::text, 'attempt', e.attempt)) filter (
      where j.id is not null and not e.id = any (coalesce(renewed, '{}'))
    ), '[]')
  ) into answer
  from json_to_recordset(entries) as e (id bigint, attempt integer)
  left join jobs j on j.id = e.id and j.attempt = e.attempt and coalesce(j.state = 'running', false);
  return answer;
end
$function$;
