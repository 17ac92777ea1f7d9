-- The table of the stored schedules and their functions, version 1.
-- Inputs: none; "{schema}" is replaced by the name of the schema.
-- Result: none.
--
-- A process that fires schedules reads those that are due, computes their next ticks, and advances them in one statement. The
-- statement changes a schedule only if its version is still the one that was read. So each tick becomes one job, whichever
-- processes try, and also if an answer is lost and the statement is sent again. Instants in JSON are in ms since 1970.
create table "{schema}".job_schedules (
  id text collate "C" primary key,
  tenant text collate "C",
  -- The name of the jobs.
  name text collate "C" not null,
  -- An object, as JSON.stringify writes it.
  payload json not null,
  -- When to fire, and the options of the jobs. Only the library reads it.
  definition json not null,
  -- The ticks of an interval count from here.
  anchor_at timestamptz not null,
  state text not null check (state in ('active', 'paused', 'over')),
  -- The next tick. Null: unknown until the last job has ended.
  tick_at timestamptz,
  -- When to look at the schedule: its tick and jitter. Without a tick, when to ask whether the last job has ended.
  due_at timestamptz check ((due_at is not null) = (state = 'active')),
  -- Rises with each change and each fire. It begins with the time in µs: a schedule that is removed and added again never has a version that
  -- somebody has read of the removed one.
  version bigint not null default (extract(epoch from clock_timestamp()) * 1000000)::bigint,
  runs bigint not null default 0,
  missed bigint not null default 0,
  overlapped bigint not null default 0,
  last_tick_at timestamptz,
  last_fired_at timestamptz,
  last_job_id bigint,
  -- Kept here, because the job is deleted some time after its end. Null: the job has not ended, as far as is known.
  last_outcome text,
  last_ended_at timestamptz,
  created_at timestamptz not null,
  changed_at timestamptz not null
);

create index job_schedules_due on "{schema}".job_schedules (due_at) where state = 'active';
create index job_schedules_tenant on "{schema}".job_schedules (tenant, id) where tenant is not null;
create index job_schedules_open on "{schema}".job_schedules (last_job_id) where last_job_id is not null and last_outcome is null;

comment on table "{schema}".job_schedules is 'holdfast: schedules whose ticks become jobs.';

create function "{schema}".jobs_ms(instant timestamptz) returns bigint language sql immutable as $function$
  select floor(extract(epoch from instant) * 1000)::bigint
$function$;

create function "{schema}".jobs_instant(ms bigint) returns timestamptz language sql immutable as $function$
  select timestamptz 'epoch' + ms * interval '1 ms'
$function$;

-- A schedule as the library reads it, without its payload. last: its last job, in the state that it has now. A job that is in no table any more has the
-- outcome that was recorded, or is gone.
create function "{schema}".jobs_schedule_json(s "{schema}".job_schedules) returns json language sql stable
set search_path = "{schema}", pg_temp set enable_seqscan = off as $function$
  select json_build_object(
    'id', s.id, 'tenant', s.tenant, 'job', s.name, 'definition', s.definition, 'state', s.state,
    'version', s.version, 'anchorMs', jobs_ms(s.anchor_at), 'tickMs', jobs_ms(s.tick_at), 'dueMs', jobs_ms(s.due_at),
    'runs', s.runs, 'missed', s.missed, 'overlapped', s.overlapped,
    'createdMs', jobs_ms(s.created_at), 'changedMs', jobs_ms(s.changed_at),
    'last', case when s.last_job_id is not null then (
      select json_build_object(
        'jobId', s.last_job_id::text, 'scheduledMs', jobs_ms(s.last_tick_at), 'firedMs', jobs_ms(s.last_fired_at),
        'outcome', coalesce(j.state, f.state, s.last_outcome, 'gone'),
        'endedMs', case when j.id is null then coalesce(jobs_ms(f.ended_at), jobs_ms(s.last_ended_at)) end
      )
      from (select s.last_job_id as id) l left join jobs j on j.id = l.id left join ended_jobs f on f.id = l.id
    ) end
  )
$function$;

-- Answers { nowMs, schedule, payload }, with the time of this database. schedule is null if there is none of this id. locks: whether to
-- keep others from changing it until the transaction ends.
create function "{schema}".jobs_read_schedule(schedule_id text, locks boolean) returns json language plpgsql
set search_path = "{schema}", pg_temp as $function$
declare
  found_schedule job_schedules;
begin
  if locks then
    perform from job_schedules where id = schedule_id for update;
  end if;
  select * into found_schedule from job_schedules where id = schedule_id;
  return json_build_object(
    'nowMs', jobs_ms(clock_timestamp()),
    'schedule', case when found_schedule.id is not null then jobs_schedule_json(found_schedule) end,
    'payload', found_schedule.payload
  );
end
$function$;

-- Adds a schedule (expected null), or changes the one that has the expected version. Answers whether it did.
-- given: { id, tenant, job, payload, definition, anchorMs, state, tickMs, dueMs }. The payload is a JSON text of its own.
create function "{schema}".jobs_write_schedule(given json, expected bigint) returns boolean language plpgsql
set search_path = "{schema}", pg_temp as $function$
declare
  e record;
begin
  select * into e from json_to_record(given) as g (
    id text, tenant text, job text, payload text, definition json, "anchorMs" bigint, state text, "tickMs" bigint, "dueMs" bigint
  );
  if expected is null then
    insert into job_schedules (
      id, tenant, name, payload, definition, anchor_at, state, tick_at, due_at, created_at, changed_at
    )
    values (
      e.id, e.tenant, e.job, e.payload::json, e.definition, jobs_instant(e."anchorMs"), e.state, jobs_instant(e."tickMs"),
      jobs_instant(e."dueMs"), clock_timestamp(), clock_timestamp()
    )
    on conflict do nothing;
  else
    update job_schedules
    set tenant = e.tenant, name = e.job, payload = e.payload::json, definition = e.definition, state = e.state,
      anchor_at = jobs_instant(e."anchorMs"), tick_at = jobs_instant(e."tickMs"), due_at = jobs_instant(e."dueMs"),
      version = version + 1, changed_at = clock_timestamp()
    where id = e.id and version = expected;
  end if;
  if not found then
    return false;
  end if;
  perform jobs_wake_firing(jobs_instant(e."dueMs"));
  return true;
end
$function$;

-- Tells the processes that fire schedules of one that is due soon. They look every 30 s without a message. It shares the channel of the
-- jobs, whose names are never empty.
create function "{schema}".jobs_wake_firing(due_at timestamptz) returns void language plpgsql as $function$
begin
  if due_at < clock_timestamp() + interval '40 s' then
    perform "{schema}".jobs_notify('holdfast_jobs', '');
  end if;
end
$function$;

-- Up to `most` schedules that are due: half of them the newest, and half the oldest, each after the first `passed` ones. So schedules that make up
-- for an outage keep no other from firing in time. Those that another transaction has locked are left out.
-- skipped: { id: version } of those that the process cannot fire. It leaves them to others until their version changes.
-- Answers { nowMs, due: [schedule], againMs, hasOpen }. againMs: after how long the next one is due, null when no time is known.
-- hasOpen: whether there are schedules whose last job has no recorded outcome.
create function "{schema}".jobs_due_schedules(most integer, passed integer, skipped jsonb) returns json language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  asked_at timestamptz := clock_timestamp();
  ids text[];
  due json;
  next_at timestamptz;
begin
  select array_agg(id) into ids from (
    select id from (
      select id from job_schedules
      where state = 'active' and due_at <= asked_at and (skipped ->> id)::bigint is distinct from version
      order by due_at desc limit most / 2 offset passed for update skip locked
    ) newest
    union
    select id from (
      select id from job_schedules
      where state = 'active' and due_at <= asked_at and (skipped ->> id)::bigint is distinct from version
      order by due_at limit most / 2 offset passed for update skip locked
    ) oldest
  ) free;
  select json_agg(jobs_schedule_json(s)) into due from job_schedules s where id = any (ids);
  select s.due_at into next_at from job_schedules s where s.state = 'active' and s.due_at > asked_at order by s.due_at limit 1;
  if exists (
    select from job_schedules s where s.state = 'active' and s.due_at <= asked_at and s.id <> all (coalesce(ids, '{}'))
      and (skipped ->> s.id)::bigint is distinct from s.version
  ) then
    -- More than the limit, or locked by an open transaction, which may end without a message.
    next_at := asked_at + interval '1 s';
  end if;
  return json_build_object(
    'nowMs', jobs_ms(asked_at), 'due', coalesce(due, '[]'),
    'againMs', ceil(extract(epoch from next_at - asked_at) * 1000),
    'hasOpen', exists (select from job_schedules where last_job_id is not null and last_outcome is null)
  );
end
$function$;

-- Advances schedules that are due, active, and have the version that was read, and enqueues a job for each of their fires. The others
-- are left alone: another process has advanced or changed them.
-- advances: [{ id, version, fires: [ms], entry, missed, overlapped, state, tickMs, dueMs }]. entry: the job as jobs_enqueue takes it,
-- without its payload.
-- Answers [{ id, jobs: [job id] }] for the advanced ones, their jobs in the order of the fires.
create function "{schema}".jobs_fire_schedules(advances json) returns json language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  advanced text[];
  entries json;
  fired text[];
  job_ids json := '[]';
begin
  select array_agg(id) into advanced from (
    select s.id from json_to_recordset(advances) as a (id text, version bigint) join job_schedules s on s.id = a.id
    where s.version = a.version and s.state = 'active' and s.due_at <= clock_timestamp()
    order by s.id for update of s skip locked
  ) free;
  select json_agg(fire.entry order by position), array_agg(fire.id order by position) into entries, fired from (
    select s.id, position,
      a.entry || jsonb_build_object('position', position, 'payload', jobs_fire_payload(s, tick_ms)) as entry
    from (
      select *, row_number() over (order by id, tick_ms) as position
      from json_to_recordset(advances) as a (id text, entry jsonb, fires jsonb)
        cross join lateral (select tick::bigint as tick_ms from jsonb_array_elements_text(a.fires) as tick) ticks
      where id = any (advanced)
    ) a join job_schedules s on s.id = a.id
  ) fire;
  if entries is not null then
    job_ids := jobs_enqueue(entries);
  end if;
  with enqueued as (
    select id, count(*) as jobs, max(job_id::bigint) as last_id
    from unnest(fired, array(select json_array_elements_text(job_ids))) as f (id, job_id) group by id
  )
  update job_schedules s
  set version = s.version + 1, state = a.state, tick_at = jobs_instant(a."tickMs"), due_at = jobs_instant(a."dueMs"),
    runs = s.runs + coalesce(e.jobs, 0), missed = s.missed + a.missed, overlapped = s.overlapped + a.overlapped,
    last_job_id = coalesce(e.last_id, s.last_job_id),
    last_tick_at = case when e.id is null then s.last_tick_at else jobs_instant((a.fires ->> -1)::bigint) end,
    last_fired_at = case when e.id is null then s.last_fired_at else clock_timestamp() end,
    last_outcome = case when e.id is null then s.last_outcome end,
    last_ended_at = case when e.id is null then s.last_ended_at end
  from json_to_recordset(advances) as a (
    id text, fires jsonb, missed integer, overlapped integer, state text, "tickMs" bigint, "dueMs" bigint
  ) left join enqueued e on e.id = a.id
  where s.id = a.id and s.id = any (advanced);
  return coalesce((
    select json_agg(json_build_object('id', id, 'jobs', (
      select coalesce(json_agg(f.job_id), '[]')
      from unnest(fired, array(select json_array_elements_text(job_ids))) as f (id, job_id) where f.id = each.id
    )))
    from unnest(advanced) as each (id)
  ), '[]');
end
$function$;

-- The payload of a fire, as text: that of the schedule, with the property `schedule`.
create function "{schema}".jobs_fire_payload(s "{schema}".job_schedules, tick_ms bigint) returns text language sql immutable
set search_path = "{schema}", pg_temp as $function$
  select '{"schedule":' || json_build_object(
    'id', s.id, 'tenant', s.tenant,
    'scheduledAt', to_char(jobs_instant(tick_ms) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
  ) || case when s.payload::text = '{}' then '}' else ',' || substr(s.payload::text, 2) end
$function$;

-- Records how the last jobs of schedules ended, before the jobs are deleted. A job that is gone was completed and is not kept, or somebody
-- has removed it. Answers whether there may be more. One call at a time works in a schema.
create function "{schema}".jobs_record_outcomes() returns boolean language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  ended text[];
begin
  if not pg_try_advisory_xact_lock(hashtextextended('holdfast records schedules of ' || current_schema(), 0)) then
    return false;
  end if;
  ended := array(
    select s.id from job_schedules s
    where s.last_job_id is not null and s.last_outcome is null and not exists (select from jobs j where j.id = s.last_job_id)
    limit 1000 for update skip locked
  );
  -- A statement of its own, so that it sees the job that was fired before its schedule was locked.
  update job_schedules s
  set last_outcome = coalesce((select f.state from ended_jobs f where f.id = s.last_job_id), 'gone'),
    last_ended_at = coalesce((select f.ended_at from ended_jobs f where f.id = s.last_job_id), clock_timestamp())
  where s.id = any (ended) and s.last_outcome is null and not exists (select from jobs j where j.id = s.last_job_id);
  return cardinality(ended) = 1000;
end
$function$;

-- A page in order of the ids, after the id `after`. Answers { nowMs, schedules }.
create function "{schema}".jobs_list_schedules(
  ids text[], tenants text[], names text[], states text[], after text, most integer
) returns json language sql stable set search_path = "{schema}", pg_temp as $function$
  select json_build_object('nowMs', jobs_ms(clock_timestamp()), 'schedules', coalesce((
    select json_agg(jobs_schedule_json(page.s) order by (page.s).id) from (
      select s from job_schedules s
      where (ids is null or s.id = any (ids)) and (tenants is null or s.tenant = any (tenants))
        and (names is null or s.name = any (names)) and (states is null or s.state = any (states))
        and (after is null or s.id > after)
      order by s.id limit most
    ) page
  ), '[]'))
$function$;

-- Answers the ids of the active schedules that it has paused.
create function "{schema}".jobs_pause_schedules(ids text[], tenants text[], names text[]) returns json language sql
set search_path = "{schema}", pg_temp as $function$
  with paused as (
    update job_schedules
    set state = 'paused', tick_at = null, due_at = null, version = version + 1, changed_at = clock_timestamp()
    where state = 'active' and (ids is null or id = any (ids)) and (tenants is null or tenant = any (tenants))
      and (names is null or name = any (names))
    returning id
  )
  select coalesce(json_agg(id order by id), '[]') from paused
$function$;

-- Lets paused schedules go on that have the version that was read. resumed: [{ id, version, state, tickMs, dueMs }].
-- Answers the ids of those that it has changed.
create function "{schema}".jobs_resume_schedules(resumed json) returns json language sql
set search_path = "{schema}", pg_temp as $function$
  with changed as (
    update job_schedules s
    set state = r.state, tick_at = jobs_instant(r."tickMs"), due_at = jobs_instant(r."dueMs"), version = s.version + 1,
      changed_at = clock_timestamp()
    from json_to_recordset(resumed) as r (id text, version bigint, state text, "tickMs" bigint, "dueMs" bigint)
    where s.id = r.id and s.version = r.version and s.state = 'paused'
    returning s.id, s.due_at
  ), woken as (
    select jobs_wake_firing(min(due_at)) from changed
  )
  select coalesce(json_agg(id order by id), '[]') from changed, woken
$function$;

-- Answers the ids of the schedules that it has removed. Their jobs stay.
create function "{schema}".jobs_remove_schedules(ids text[], tenants text[], names text[]) returns json language sql
set search_path = "{schema}", pg_temp as $function$
  with removed as (
    delete from job_schedules
    where (ids is null or id = any (ids)) and (tenants is null or tenant = any (tenants)) and (names is null or name = any (names))
    returning id
  )
  select coalesce(json_agg(id order by id), '[]') from removed
$function$;
