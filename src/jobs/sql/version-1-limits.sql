-- The functions of the jobs, version 1: limits of names. What a name may do is a row, which a claim reads before it takes jobs.
-- Inputs: none; "{schema}" is replaced by the name of the schema.
-- Result: none.

-- A name without a limit has no row.
create table "{schema}".job_limits (
  name text collate "C" primary key,
  paused boolean not null default false,
  -- How many of its jobs may run at once. Null: any number.
  concurrency integer,
  -- How many of its jobs may be claimed within any stretch of time that is as long as the window. Null: any number.
  points integer,
  window_ms bigint,
  check ((points is null) = (window_ms is null)),
  -- The jobs that were claimed under the limit and had not ended at the last claim: at most as many as concurrency.
  running bigint[] not null default '{}',
  -- When the bounds were set last.
  set_at timestamptz not null default clock_timestamp(),
  -- When jobs were claimed within the last window: at most as many instants as points.
  claimed_at timestamptz[] not null default '{}'
);
comment on table "{schema}".job_limits is 'holdfast: the names of jobs that are paused or limited.';

-- How many jobs of a name its limit allows now; null: any number. waits_ms: after how long it may allow more; null: nobody knows.
create function "{schema}".jobs_room(known "{schema}".job_limits, out free integer, out waits_ms double precision) language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  -- When each point of the window comes back, in order.
  points_at timestamptz[];
begin
  if known.paused then
    free := 0;
    return;
  end if;
  if known.concurrency is not null then
    free := known.concurrency - (
      select count(*) from jobs where id = any (known.running) and coalesce(state = 'running', false)
    )::integer;
    if free <= 0 then
      -- The worker that ends a job of this name claims in the same statement. This is for one that has no place.
      waits_ms := 500;
    end if;
  end if;
  if known.points is not null then
    points_at := array(
      select at + known.window_ms * interval '1 ms' from unnest(known.claimed_at) as at
      where at > clock_timestamp() - known.window_ms * interval '1 ms' order by at
    );
    free := least(free, known.points - cardinality(points_at));
    if free <= 0 and cardinality(points_at) > 0 then
      waits_ms := least(
        waits_ms, 1 + extract(epoch from points_at[greatest(1, cardinality(points_at) - known.points + 1)] - clock_timestamp()) * 1000
      );
    end if;
  end if;
  free := greatest(free, 0);
end
$function$;

-- How many jobs of each of the names may be claimed now; null: any number.
-- Locks the limits until the claim commits, so that claims at the same time do not count the same places. Only those of names that have
-- a job to claim. Whoever has this lock waits for no other, so it cannot be part of a deadlock.
create function "{schema}".jobs_allowed(names text[]) returns integer[] language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  allowed integer[] := array_fill(null::integer, array[cardinality(names)]);
  due record;
  known job_limits;
begin
  for due in
    select l.name, l.paused, exists (select from jobs j where j.state = 'ready' and j.name = l.name) as has_jobs
    from job_limits l where l.name = any (names) order by l.name
  loop
    -- A job that becomes ready after this look is left to the next claim, because the limit of its name is not locked.
    if due.paused or not due.has_jobs then
      allowed[array_position(names, due.name)] := 0;
      continue;
    end if;
    -- A statement of its own, and those after it: they see what the last owner of the lock has committed.
    select * into known from job_limits l where l.name = due.name for update;
    continue when not found;
    -- A claim that was under way when the name got its limit has counted nothing.
    if known.concurrency is not null and known.set_at > clock_timestamp() - interval '1 min' then
      update job_limits l set running = array(select id from jobs where state = 'running' and name = due.name)
      where l.name = due.name returning * into known;
    end if;
    allowed[array_position(names, due.name)] := (select r.free from jobs_room(known) r);
  end loop;
  return allowed;
end
$function$;

-- Whether ready jobs are left of the names that the claim is allowed no more of, so that it has kept them back.
create function "{schema}".jobs_kept_back(names text[], allowed integer[]) returns boolean language sql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
  select exists (
    select from unnest(names, allowed) as n (name, allowed)
    where n.allowed = 0 and exists (select from jobs j where j.state = 'ready' and j.name = n.name)
  )
$function$;

-- After how long a claim may find more of those jobs; null: nobody knows. 0: a limit has become wider since the claim read it, or a name
-- has got its first job since then. Locks nothing, so it may follow the locks of jobs_allowed.
create function "{schema}".jobs_allowed_in(names text[], allowed integer[]) returns double precision language sql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
  select min(case when r.free = 0 then r.waits_ms else 0 end)
  from unnest(names, allowed) as n (name, allowed) join job_limits l on l.name = n.name cross join lateral jobs_room(l) r
  where n.allowed = 0 and exists (select from jobs j where j.state = 'ready' and j.name = n.name)
$function$;

-- Counts the jobs that a claim has taken, of those that it found. Answers what is then left of allowed.
create function "{schema}".jobs_take(names text[], allowed integer[], found_ids bigint[]) returns integer[] language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  taken record;
  at integer;
begin
  for taken in
    select j.name, array_agg(j.id) as ids from jobs j
    where j.id = any (found_ids) and coalesce(j.state = 'running', false) group by j.name
  loop
    at := array_position(names, taken.name);
    continue when allowed[at] is null;
    allowed[at] := allowed[at] - cardinality(taken.ids);
    update job_limits l
    set running = case when l.concurrency is not null then
        array(select j.id from jobs j where j.id = any (l.running || taken.ids) and coalesce(j.state = 'running', false))
      else '{}' end,
      claimed_at = case when l.points is not null then
        array(
          select c from unnest(l.claimed_at) as c where c > clock_timestamp() - l.window_ms * interval '1 ms'
        ) || array_fill(clock_timestamp(), array[cardinality(taken.ids)])
      else '{}' end
    where l.name = taken.name;
  end loop;
  return allowed;
end
$function$;

-- Sets what a name may do, beside its pause. If it gets its first bound, the jobs that run already count.
create function "{schema}".jobs_limit(limited text, most_running integer, most_points integer, of_window_ms bigint) returns void
language plpgsql set search_path = "{schema}", pg_temp as $function$
begin
  insert into job_limits as l (name, concurrency, points, window_ms)
  values (limited, most_running, most_points, of_window_ms)
  on conflict (name) do update set concurrency = most_running, points = most_points, window_ms = of_window_ms, set_at = clock_timestamp(),
    running = case when l.concurrency is not null then l.running else '{}' end;
  if most_running is not null then
    update job_limits set running = array(select id from jobs where name = limited and state = 'running')
    where name = limited and running = '{}';
  end if;
  perform jobs_limit_changed(limited);
end
$function$;

create function "{schema}".jobs_pause(named text, is_paused boolean) returns void
language plpgsql set search_path = "{schema}", pg_temp as $function$
begin
  if is_paused then
    insert into job_limits as l (name, paused) values (named, true) on conflict (name) do update set paused = true;
  else
    update job_limits set paused = false where name = named;
  end if;
  perform jobs_limit_changed(named);
end
$function$;

-- What of a paused name is still to end. claims_before: null, or claims that an earlier call has answered. Answers { claims, running }.
--   claims    transactions that have looked at the limits and are open, maybe since before the pause; only those of claims_before
--   running   how many jobs of the name run, or are claimed ahead
-- A transaction that has looked at a table keeps a lock of it up to its end, and a claim looks at the limits before it takes a job, or in
-- the same statement. So when all claims of an answer have ended, and after that no job of the name runs, none runs until it is resumed.
-- The locks are read first: what such a transaction has committed is visible before its locks go. A statement locks its tables before it
-- takes its snapshot.
create function "{schema}".jobs_still_busy(named text, claims_before text[]) returns json
language plpgsql set search_path = "{schema}", pg_temp as $function$
declare
  claims text[];
begin
  select coalesce(array_agg(distinct l.virtualtransaction), '{}') into claims from pg_locks l
  where l.locktype = 'relation' and l.relation = 'job_limits'::regclass and l.pid <> pg_backend_pid()
    and l.database = (select oid from pg_database where datname = current_database())
    and (claims_before is null or l.virtualtransaction = any (claims_before));
  return json_build_object(
    'claims', to_json(claims), 'running', (select count(*) from jobs where state = 'running' and name = named)
  );
end
$function$;

-- Forgets a row that says nothing, and wakes the workers of the name.
create function "{schema}".jobs_limit_changed(changed text) returns void
language plpgsql set search_path = "{schema}", pg_temp as $function$
begin
  delete from job_limits where name = changed and not paused and concurrency is null and points is null;
  perform jobs_notify('holdfast_jobs', changed);
end
$function$;

create function "{schema}".jobs_limits() returns json
language sql stable set search_path = "{schema}", pg_temp as $function$
  select coalesce(json_agg(json_build_object(
    'name', name, 'isPaused', paused, 'concurrency', concurrency, 'points', points, 'windowMs', window_ms
  ) order by name), '[]') from job_limits
$function$;
