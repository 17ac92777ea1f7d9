-- The functions of the jobs, version 2: how attempts end, with fewer statements.
-- Inputs: none; "{schema}" is replaced by the name of the schema.
-- Result: none.

-- Ends attempts: of the jobs that are done, in order of their ids, with their attempts, and of others, null when there are
-- none: [{ id, attempt, reason, retry, retry_in_ms }], without reason when it is given back unharmed. groups has those of
-- all these jobs.
-- Answers { lost: [id], outcomes: [...] }: the done ones whose attempt was not the one that runs, so that nothing was changed, and
-- what became of each of the others, null for the same. Asked again after a lost answer, a job that is kept is not lost.
-- Unless it is patient, an outcome may be busy: that one has to be asked again, alone. After the first busy one the others
-- that have a unique key are not tried, so that it costs those that are done one wait at most.
create function "{schema}".jobs_settle_2(
  done bigint[], attempts integer[], groups text[], others json, keeps_completed boolean, patient boolean
) returns json language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  completed bigint[];
  lost json := '[]';
  other record;
  outcome text;
  is_busy boolean := false;
  outcomes jsonb := '[]';
begin
  if groups <> '{}' then
    perform pg_advisory_xact_lock(key) from (
      select distinct jobs_group_lock(g) as key from unnest(groups) as g order by key
    ) keys;
  end if;

  if done <> '{}' then
    with gone as (
      delete from jobs
      -- Hidden from the planner: its statistics mostly know of no running jobs, so it would take a partial index and read them all.
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
  end if;

  if others is not null then
    for other in
      select * from json_to_recordset(others) as e (
        id bigint, attempt integer, reason text, retry boolean, retry_in_ms bigint
      )
    loop
      outcome := case
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
  return json_build_object('lost', lost, 'outcomes', outcomes);
end
$function$;
