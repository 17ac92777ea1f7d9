-- The functions of the jobs, version 1: claims and their leases.
-- Inputs: none; "{schema}" is replaced by the name of the schema.
-- Result: none.

-- Makes due jobs ready, and ends attempts whose lease is over. A claim calls it when something is due, so no other process has
-- to. Answers whether there may be more.
create function "{schema}".jobs_wake(asked_at timestamptz) returns boolean language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  woken text[];
  lost record;
  outcome text;
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
    -- Only tried, because rows are locked already. If another transaction has this group or this job, the next claim looks again.
    continue when lost.group_key is not null and not pg_try_advisory_xact_lock(jobs_group_lock(lost.group_key));
    perform from jobs where id = lost.id and attempt = lost.attempt and state = 'running' and due_at <= asked_at
      for update skip locked;
    continue when not found;
    outcome := jobs_end_attempt(
      lost.id, lost.attempt, format('The worker %s was not heard of within its lease.', lost.worker), true, null, false
    );
    if outcome = 'busy' then
      -- Looked at again after a second. Otherwise every claim would wait for the same transaction.
      update jobs set due_at = clock_timestamp() + interval '1 s' where id = lost.id;
      exit;
    end if;
    if lost.group_key is not null then
      perform jobs_unblock(array[lost.group_key]);
    end if;
  end loop;
  return seen = 1000;
end
$function$;

-- Claims up to wanted jobs of the names handled, each with a lease of ttl_ms.
-- known is null, or the jobs that the claimant knows it has. Other jobs of the claimant are delivered once more, because the
-- answer that brought them was lost.
-- Jobs that have to wait for their groups leave places free. These go to jobs of other groups, in up to 5 rounds.
-- Answers a JSON text { jobs: [[id, [name, unique_key, group_key], payload, priority, attempt, failures, max_attempts,
-- enqueued_at]], again_ms }: after how long another claim may bring more, null when no time is known.
create function "{schema}".jobs_claim(handled text[], wanted integer, claimant text, ttl_ms bigint, known bigint[])
returns text language plpgsql set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  asked_at timestamptz := clock_timestamp();
  more boolean := false;
  -- The addresses of the rows. Locked rows stay where they are, so they need no second look-up.
  places tid[];
  again tid[];
  grouped bigint[];
  refused bigint[];
  -- Groups that this claim has been at.
  passed text[] := '{}';
  met text[];
  taken integer;
  leased_until timestamptz;
  again_ms double precision;
  part text;
  answer text;
  is_busy boolean := false;
begin
  if exists (select from jobs where state in ('delayed', 'running') and due_at <= asked_at) then
    more := jobs_wake(asked_at);
  end if;

  -- First, because this may wait for a settlement of one of them that is on its way.
  if known is not null then
    select array_agg(mine.ctid) into again from (
      select ctid from jobs where state = 'running' and worker = claimant and not (id = any (known)) for update
    ) mine;
  end if;
  for round in 1..5 loop
    select array_agg(c.place), array_agg(c.id) filter (where c.group_key is not null),
      array_agg(c.group_key) filter (where c.group_key is not null)
    into places, grouped, met
    from (
      select j.* from unnest(handled) as h (name) cross join lateral (
        select r.ctid as place, r.id, r.priority, r.group_key from jobs r where r.state = 'ready' and r.name = h.name
          and (r.group_key is null or r.group_key <> all (passed))
        order by r.priority desc, r.id limit wanted for update skip locked
      ) j order by j.priority desc, j.id limit wanted
    ) c;
    more := more or cardinality(places) = wanted;
    exit when places is null and again is null;
    refused := null;
    if grouped is not null then
      refused := jobs_refuse_groups(grouped);
      is_busy := is_busy or cardinality(refused) > 0;
    end if;

    leased_until := clock_timestamp() + ttl_ms * interval '1 ms';
    with claimed as (
      -- Jobs that jobs_refuse_groups has blocked have other addresses by now.
      update jobs j set state = 'running', attempt = j.attempt + (j.state = 'ready')::integer, worker = claimant,
        started_at = case when j.state = 'ready' then asked_at else j.started_at end, due_at = leased_until
      where j.ctid = any (places || again) and (refused is null or not (j.id = any (refused)))
      returning j.*
    )
    select string_agg(
      concat(
        '["', id, '",', to_json(array[name, unique_key, group_key]), ',', payload, ',', priority, ',', attempt, ',', failures, ',',
        max_attempts, ',', floor(date_part('epoch', enqueued_at) * 1000)::bigint, ']'
      ), ',' order by priority desc, id
    ), count(*) into part, taken from claimed;
    answer := nullif(concat_ws(',', answer, part), '');
    taken := taken - coalesce(cardinality(again), 0);
    -- All jobs that were found were taken: there are no others.
    exit when taken >= coalesce(cardinality(places), 0);
    again := null;
    wanted := wanted - taken;
    passed := passed || met;
  end loop;

  if more then
    again_ms := 0;
  else
    select ceil(extract(epoch from min(due_at) - clock_timestamp()) * 1000) into again_ms
    from jobs where state in ('delayed', 'running') and due_at > asked_at;
    -- Another transaction has one of these groups. It notifies when it commits, but not when it rolls back.
    if is_busy then
      again_ms := least(again_ms, 200);
    end if;
  end if;
  return concat('{"jobs":[', answer, '],"again_ms":', coalesce(again_ms::text, 'null'), '}');
end
$function$;

-- taken: jobs that the caller has locked. Blocks those that are not the next of their groups, with up to 1,000 more of each of
-- these groups. Answers those whose group another transaction has locked.
-- One by one, blocking 50,000 jobs of a group took 5 s of claims.
create function "{schema}".jobs_refuse_groups(taken bigint[]) returns bigint[] language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  candidate record;
  head record;
  refused bigint[] := '{}';
  blocked bigint[] := '{}';
  -- Groups with jobs that have to wait, and the next job of each group; 0 when a job of the group runs.
  crowded text[] := '{}';
  heads bigint[] := '{}';
begin
  for candidate in
    select id, group_key from jobs where id = any (taken) and group_key is not null order by priority desc, id
  loop
    if candidate.group_key = any (crowded) then
      blocked := blocked || candidate.id;
      continue;
    end if;
    if not pg_try_advisory_xact_lock(jobs_group_lock(candidate.group_key)) then
      refused := refused || candidate.id;
      continue;
    end if;
    -- A statement of its own, after the lock, so that it sees what the last owner of the lock has committed.
    select id, state, exists (
      select from jobs r where r.group_key = candidate.group_key and r.state = 'running'
    ) as running into head
    from jobs where group_key = candidate.group_key and state in ('ready', 'blocked') order by priority desc, id limit 1;
    continue when head.id = candidate.id and not head.running;
    blocked := blocked || candidate.id;
    crowded := crowded || candidate.group_key;
    heads := heads || case when head.running then 0 else head.id end;
    if head.state = 'blocked' and not head.running then
      perform jobs_unblock(array[candidate.group_key]);
    end if;
  end loop;
  update jobs set state = 'blocked' where id = any (blocked);
  with later as (
    select l.id from unnest(crowded, heads) as g (group_key, head) cross join lateral (
      select j.id from jobs j where j.group_key = g.group_key and j.state = 'ready' and j.id <> g.head
      order by j.priority desc, j.id limit 1000 for update skip locked
    ) l
  )
  update jobs j set state = 'blocked' from later where j.id = later.id;
  return refused;
end
$function$;

-- Renews leases: [{ id, attempt }]. Answers { gone: [id], skipped: [id] }. gone: the attempt no longer runs. skipped: another
-- transaction is just changing the row, so ask again.
create function "{schema}".jobs_renew(entries json, ttl_ms bigint) returns json language plpgsql
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
    update jobs j set due_at = clock_timestamp() + ttl_ms * interval '1 ms' from held where j.id = held.id returning j.id
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
