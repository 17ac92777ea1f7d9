-- The functions of the jobs, version 3: claims that many jobs of one group do not hold up.
-- Inputs: none; "{schema}" is replaced by the name of the schema.
-- Result: none.
--
-- In the place of those before, which take and give the same: processes of the version before call these from now on.

-- Of jobs that the caller has locked, blocks those whose turn in their groups comes later, with up to 1,000 more of each of
-- these groups, and answers those whose groups somebody else is at. One by one, 50,000 jobs of a group took 5 s of claims.
create or replace function "{schema}".jobs_refuse_groups(taken bigint[]) returns bigint[] language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  candidate record;
  head record;
  refused bigint[] := '{}';
  blocked bigint[] := '{}';
  -- Groups with jobs that have to wait, and the one of each that may be claimed next; 0: none, as one runs.
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
    -- A statement of its own, after the lock: so it sees what the last one who had the lock has done.
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

-- Claims as before. Places that are left because jobs have to wait for their groups are given to jobs of other groups in
-- the same claim, in up to 5 rounds.
create or replace function "{schema}".jobs_claim_2(handled text[], wanted integer, claimant text, term_ms bigint, known bigint[])
returns text language plpgsql set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  asked_at timestamptz := clock_timestamp();
  more boolean := false;
  -- Where the rows are. They are locked, so they stay there, and are not looked up again.
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

  -- First, because it may wait for an end of one of them that is on its way.
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

    leased_until := clock_timestamp() + term_ms * interval '1 ms';
    with claimed as (
      -- Those that were found to be blocked are elsewhere by now.
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
    -- All that were found were taken, so there are no others.
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
    -- Somebody else is at one of these groups at this very moment, and tells when it is through; unless it gives up.
    if is_busy then
      again_ms := least(again_ms, 200);
    end if;
  end if;
  return concat('{"jobs":[', answer, '],"again_ms":', coalesce(again_ms::text, 'null'), '}');
end
$function$;
