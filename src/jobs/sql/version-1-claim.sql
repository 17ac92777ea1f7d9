-- The functions of the jobs, version 1: claims.
-- Inputs: none; "{schema}" is replaced by the name of the schema.
-- Result: none.

-- Claims up to wanted jobs of the names handled, which the claimant begins at once, and up to further ones ahead, which it begins
-- later. Each has a lease of ttl_ms. A job that may not be claimed ahead ends the claim, so that none passes it. Such are
--   jobs with an error or with a single attempt              their loss has to count, so they are claimed only to be begun
--   jobs whose payload is stored in more than 2,000 bytes    hundreds of them would be too much for one answer
-- known and attempts are null, or the jobs and attempts that the claimant knows it has. Its other attempts whose leases are not over are
-- delivered once more, because the answer that brought them was lost. The statement of that answer may still run, and a server that cannot send
-- the answer ends it after many minutes. It is not waited for, and nothing is delivered once more: ask again later.
-- A name with a limit gives as many jobs as its limit allows, which jobs_allowed says for all names at once.
-- Jobs that have to wait for their groups leave places free. These go to jobs of other groups, in up to 5 rounds,
-- or 20 if large jobs have to wait.
-- The payloads of a claim have up to 4 MiB together, or it is a single job: a larger answer may come too late, again and again.
-- Answers a JSON text { jobs: [[id, [name, unique_key, group_key, trace], payload, priority, attempt, failures, max_attempts,
-- enqueued_at, waited_ms]], again_ms, limited, earlier_runs }. again_ms: after how long another claim may bring more, null when no time is known.
-- limited: whether a limit has kept jobs back, so a job that ends may let another one begin.
-- earlier_runs: whether the statement of an earlier claim still runs, or some of its jobs are still to be delivered, because there are too
-- many of them or another transaction has locked them; always false if known is null.
--
-- If nothing but ready jobs is there, as mostly for a worker that was idle, one statement is the whole claim. jobs_claim_thoroughly makes
-- all other claims. On a cold cache each further statement takes 10 to 20 microseconds, and so do thirty variables more.
create function "{schema}".jobs_claim(
  handled text[], wanted integer, further integer, claimant text, ttl_ms bigint, known bigint[], attempts integer[]
) returns text language plpgsql set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  asked_at timestamptz := clock_timestamp();
  leased_until timestamptz := asked_at + ttl_ms * interval '1 ms';
  nothing text;
  part text;
  taken integer := 0;
  seen integer;
  -- The names of jobs that it has locked and does not take: the first jobs of each name are locked before the first of all are chosen.
  passed_over text[];
  -- Whether a parent is to be told, or a name has a limit.
  is_special boolean;
  -- When the next delayed job is due, or the next lease ends.
  next_at timestamptz;
begin
  if further = 0 and wanted > 0 and known is null then
    -- An assignment is no statement of its own, as perform would be.
    nothing := pg_advisory_xact_lock_shared(jobs_claimant_lock(claimant))::text;
    -- Takes the first ready jobs, unless something is due, is_special, one of these jobs has a group, or they are large. Passes over a
    -- job that another transaction has changed since the statement began: seen counts it, and taken does not.
    with look as materialized (
      select exists (select from ended_jobs where tell_at <= asked_at) or exists (select from job_limits where name = any (handled))
          as is_special,
        least(
          (select due_at from jobs where state = 'delayed' order by due_at limit 1),
          (select due_at from jobs where state = 'running' order by due_at limit 1)
        ) as due_at
    ), locked as materialized (
      select h.name, j.* from unnest(handled) as h (name) cross join lateral (
        select r.ctid as place, r.id, r.priority, r.group_key,
          case when pg_column_size(r.payload) <= 2000 then octet_length(r.payload::text) end as bytes
        from jobs r where r.state = 'ready' and r.name = h.name
          and (select not l.is_special and coalesce(l.due_at > asked_at, true) from look l)
        order by r.priority desc, r.id limit wanted for no key update skip locked
      ) j
    ), first as materialized (
      select * from locked order by priority desc, id limit wanted
    ), claimed as (
      update jobs j set state = 'running', attempt = j.attempt + 1, worker = claimant, started_at = asked_at, due_at = leased_until,
        ahead = false
      where j.ctid = any ((
        select case
          when count(group_key) = 0 and (count(*) = 1 or count(bytes) = count(*) and sum(bytes) <= 4194304) then array_agg(place)
        end from first
      )::tid[])
      returning j.*
    )
    select string_agg(
      concat(
        '["', id, '",', to_json(array[name, unique_key, group_key, trace]), ',', payload, ',', priority, ',', attempt, ',', failures, ',',
        max_attempts, ',', floor(date_part('epoch', enqueued_at) * 1000)::bigint, ',',
        greatest(floor(date_part('epoch', started_at - ready_at) * 1000)::bigint, 0), ']'
      ), ',' order by priority desc, id
    ), count(*), (select count(*) from first), (select l.is_special from look l), (select l.due_at from look l),
      (select array_agg(distinct name) from locked where id not in (select id from first))
    into part, taken, seen, is_special, next_at, passed_over from claimed;
    if passed_over is not null then
      -- They stay locked until the commit. Claims that pass over them meanwhile would sleep.
      perform jobs_notify('holdfast_jobs', name) from unnest(passed_over) as name;
    end if;
    if taken = seen and not is_special and coalesce(next_at > asked_at, true) then
      if taken > 0 then
        next_at := least(next_at, leased_until);
      end if;
      return concat(
        '{"jobs":[', part, '],"again_ms":',
        case when taken = wanted then 0 else ceil(date_part('epoch', next_at - clock_timestamp()) * 1000) end,
        case when taken < wanted and next_at is null then 'null' end, ',"limited":false,"earlier_runs":false}'
      );
    end if;
  end if;
  return jobs_claim_thoroughly(handled, wanted - taken, further, claimant, ttl_ms, known, attempts, part);
end
$function$;

-- How many of the first of these jobs have payloads of up to room bytes together. It reads no further ones.
create function "{schema}".jobs_fitting(places tid[], room bigint) returns integer language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  place tid;
  bytes integer;
  fitting integer := 0;
begin
  foreach place in array coalesce(places, '{}') loop
    select octet_length(payload::text) into bytes from jobs where ctid = place;
    room := room - bytes;
    exit when room < 0;
    fitting := fitting + 1;
  end loop;
  return fitting;
end
$function$;

-- The same for any claim. answer: the JSON text of jobs that the claim has taken already.
create function "{schema}".jobs_claim_thoroughly(
  handled text[], wanted integer, further integer, claimant text, ttl_ms bigint, known bigint[], attempts integer[], answer text
) returns text language plpgsql set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  asked_at timestamptz := clock_timestamp();
  more boolean := false;
  most integer := wanted + further;
  -- For each of the first jobs, in order: which of the handled names it has.
  positions bigint[];
  -- How many jobs of each name to take; null: up to most.
  quotas integer[];
  -- How many jobs of each name its limit allows; null: any number.
  allowed integer[];
  -- The addresses of the rows. Locked rows stay where they are, so they need no second look-up.
  places tid[];
  again tid[];
  -- Which of these jobs may not be claimed ahead.
  alone boolean[];
  found integer;
  rounds integer := 0;
  -- How many of these jobs to take, when such a one ends the claim, or there is no room for all.
  fit integer;
  -- Those that are not taken for that reason.
  left_out tid[];
  -- How many bytes their payloads have, without those that are stored in more than 2,000 bytes: to read these would take long.
  bytes bigint;
  has_large boolean;
  -- How many bytes the answer may still grow by.
  room bigint := 4194304 - coalesce(octet_length(answer), 0);
  ids bigint[];
  priorities smallint[];
  -- The group of each of these jobs, or null.
  groups text[];
  grouped bigint[];
  refused bigint[];
  -- Groups that this claim has been at.
  passed text[] := '{}';
  met text[];
  -- The names of jobs that it has locked and does not take.
  passed_over text[];
  taken integer;
  leased_until timestamptz;
  again_ms double precision;
  part text;
  has_ended_children boolean;
  has_due boolean;
  has_limits boolean;
  is_busy boolean := false;
  is_limited boolean := false;
  earlier_runs boolean := false;
begin
  if wanted = 0 and further > 0 and ttl_ms >= 1000 then
    -- Before the wait: whoever asks for the jobs of a lost answer has to see that this claim runs.
    perform pg_advisory_xact_lock_shared(jobs_claimant_lock(claimant));
    perform jobs_line_up(handled);
    asked_at := clock_timestamp();
  end if;
  select exists (select from ended_jobs where tell_at <= asked_at),
    exists (select from jobs where state = 'delayed' and due_at <= asked_at)
      or exists (select from jobs where state = 'running' and due_at <= asked_at),
    exists (select from job_limits where name = any (handled))
  into has_ended_children, has_due, has_limits;
  if has_ended_children then
    more := jobs_tell_parents(asked_at);
  end if;
  if has_due then
    more := jobs_wake(asked_at) or more;
  end if;
  if has_ended_children or has_due then
    -- Looks again: a name may have been paused meanwhile.
    has_limits := exists (select from job_limits where name = any (handled));
  end if;

  if known is null then
    perform pg_advisory_xact_lock_shared(jobs_claimant_lock(claimant));
  elsif not jobs_claims_alone(claimant) then
    earlier_runs := true;
  else
    -- One that another transaction has locked is being settled, or waits for the end of that transaction. One whose lease is over may have
    -- run, and the claimant has forgotten it. It ends as a failure.
    select array_agg(mine.ctid) into again from (
      select ctid from jobs where state = 'running' and worker = claimant and due_at > asked_at and not overdue
        and (id, attempt) not in (select * from unnest(known, attempts)) for no key update skip locked
    ) mine;
    fit := greatest(jobs_fitting(again, room), 1);
    -- Another statement may have one of them for a moment.
    earlier_runs := coalesce(cardinality(again), 0) > fit or coalesce(cardinality(again), 0) < (
      select count(*) from jobs where state = 'running' and worker = claimant and due_at > asked_at and not overdue
        and (id, attempt) not in (select * from unnest(known, attempts))
    );
    again := again[:fit];
  end if;

  if has_limits then
    allowed := jobs_allowed(handled);
  end if;

  if further > 0 then
    -- Looks before it locks: what a claim locks and does not take is hidden from the claims of others, which then sleep.
    select least(most, min(n) filter (where is_alone and n > wanted) - 1), array_agg(position order by n) into most, positions
    from (
      select h.position, row_number() over (order by j.priority desc, j.id) as n, j.is_alone
      from unnest(handled, allowed) with ordinality as h (name, allowed, position) cross join lateral (
        select r.priority, r.id, r.error is not null or r.max_attempts = 1 or pg_column_size(r.payload) > 2000 as is_alone
        from jobs r where r.state = 'ready' and r.name = h.name order by r.priority desc, r.id
        limit least(h.allowed, wanted + further)
      ) j
    ) first;
    more := more or most < wanted + further;
    if cardinality(handled) > 1 and cardinality(positions) >= most then
      select array_agg(quota order by position) into quotas from (
        select h.position, count(p.position) as quota from generate_subscripts(handled, 1) as h (position)
        left join unnest(positions[1:most]) as p (position) on p.position = h.position group by h.position
      ) each;
    end if;
  end if;
  for round in 1..20 loop
    with locked as materialized (
      select h.name, j.* from unnest(handled, quotas, allowed) as h (name, quota, allowed) cross join lateral (
        select r.ctid as place, r.id, r.priority, r.group_key,
          case when pg_column_size(r.payload) <= 2000 then octet_length(r.payload::text) end as bytes,
          further > 0 and (r.error is not null or r.max_attempts = 1 or pg_column_size(r.payload) > 2000) as is_alone
        from jobs r where r.state = 'ready' and r.name = h.name
          and (r.group_key is null or r.group_key <> all (passed))
        order by r.priority desc, r.id limit least(coalesce(h.quota, most), h.allowed) for no key update skip locked
      ) j
    ), c as materialized (
      select * from locked order by priority desc, id limit most
    )
    select array_agg(c.place), array_agg(c.id), array_agg(c.priority), array_agg(c.is_alone),
      array_agg(c.group_key), sum(c.bytes), bool_or(c.bytes is null),
      (select array_agg(distinct l.name) from locked l where l.id not in (select id from c))
    into places, ids, priorities, alone, groups, bytes, has_large, passed_over
    from c;
    if passed_over is not null then
      -- They stay locked until the commit. Claims that pass over them meanwhile would sleep.
      perform jobs_notify('holdfast_jobs', name) from unnest(passed_over) as name;
    end if;
    found := coalesce(cardinality(places), 0);
    exit when places is null and again is null;
    -- Other claims have locked some of the jobs that the look saw, so later ones are here instead.
    fit := wanted + array_position(alone[wanted + 1:], true) - 1;
    if has_large or bytes > room then
      -- Null stands for all of them, and least() passes over it.
      fit := least(fit, nullif(greatest(jobs_fitting(places, room), (answer is null)::integer), cardinality(places)));
    end if;
    left_out := places[fit + 1:];
    places := coalesce(places[:fit], places);
    select array_agg(g.id), array_agg(g.group_key) into grouped, met
    from unnest(ids[:cardinality(places)], groups[:cardinality(places)]) as g (id, group_key) where g.group_key is not null;
    refused := null;
    if grouped is not null then
      refused := jobs_refuse_groups(grouped);
      is_busy := is_busy or cardinality(refused) > 0;
    end if;
    -- There may be more, unless all were refused: another claim would find the same.
    if (fit is not null or (found = most and most > 0)) and coalesce(cardinality(refused), 0) < greatest(coalesce(fit, found), 1) then
      more := true;
      -- The others stay locked until the commit. Claims that pass over them meanwhile would sleep.
      perform jobs_notify('holdfast_jobs', name) from (
        select distinct name from jobs where ctid = any (left_out)
      ) others;
    end if;

    leased_until := clock_timestamp() + ttl_ms * interval '1 ms';
    with claimed as (
      -- Jobs that jobs_refuse_groups has blocked have other addresses by now.
      update jobs j set state = 'running', attempt = j.attempt + (j.state = 'ready')::integer, worker = claimant,
        started_at = case when j.state = 'ready' then asked_at else j.started_at end, due_at = leased_until,
        ahead = case
          when j.state <> 'ready' then j.ahead
          else wanted = 0 or coalesce((j.priority, -j.id) < (priorities[wanted], -ids[wanted]), false)
        end
      where j.ctid = any (places || again) and (refused is null or not (j.id = any (refused)))
      returning j.*
    )
    select string_agg(
      concat(
        '["', id, '",', to_json(array[name, unique_key, group_key, trace]), ',', payload, ',', priority, ',', attempt, ',', failures, ',',
        max_attempts, ',', floor(date_part('epoch', enqueued_at) * 1000)::bigint, ',',
        greatest(floor(date_part('epoch', started_at - ready_at) * 1000)::bigint, 0), ']'
      ), ',' order by priority desc, id
    ), count(*) into part, taken from claimed;
    answer := nullif(concat_ws(',', answer, part), '');
    room := room - coalesce(octet_length(part), 0);
    taken := taken - coalesce(cardinality(again), 0);
    if allowed is not null then
      allowed := jobs_take(handled, allowed, ids);
    end if;
    -- All jobs that were found were taken: there are no others.
    exit when taken >= coalesce(cardinality(places), 0) or taken >= wanted;
    -- A round of a few large jobs whose groups are all locked does not count.
    rounds := rounds + (taken > 0 or fit is null)::integer;
    exit when rounds = 5;
    again := null;
    wanted := wanted - taken;
    most := wanted;
    quotas := null;
    passed := passed || met;
  end loop;

  if 0 = any (allowed) then
    is_limited := jobs_kept_back(handled, allowed);
  end if;
  if more then
    again_ms := 0;
  else
    select ceil(extract(epoch from least(
      (select min(due_at) from jobs where state = 'delayed' and due_at > asked_at),
      (select min(due_at) from jobs where state = 'running' and due_at > asked_at)
    ) - clock_timestamp()) * 1000) into again_ms;
    -- Another transaction has one of these groups. It notifies when it commits, but not when it rolls back.
    if is_busy then
      again_ms := least(again_ms, 200);
    end if;
    if is_limited then
      again_ms := least(again_ms, ceil(jobs_allowed_in(handled, allowed)));
    end if;
  end if;
  return concat(
    '{"jobs":[', answer, '],"again_ms":', coalesce(again_ms::text, 'null'),
    ',"limited":', to_json(is_limited), ',"earlier_runs":', to_json(earlier_runs), '}'
  );
end
$function$;

-- taken: jobs that the caller has locked. Blocks those that may not run beside the others of their groups, with up to 1,000 more of
-- each of these groups. Answers those whose group, or a next job of it, another transaction has locked.
-- One by one, blocking 50,000 jobs of a group took 5 s of claims.
create function "{schema}".jobs_refuse_groups(taken bigint[]) returns bigint[] language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  candidate record;
  -- Which jobs of the group may run now.
  next bigint[];
  has_blocked boolean;
  refused bigint[] := '{}';
  blocked bigint[] := '{}';
  -- Groups with jobs that have to wait, and their jobs that need not.
  crowded text[] := '{}';
  free bigint[] := '{}';
begin
  for candidate in
    select group_key, array_agg(id) as ids from jobs where id = any (taken) and group_key is not null group by group_key
  loop
    if not pg_try_advisory_xact_lock(jobs_group_lock(candidate.group_key)) then
      refused := refused || candidate.ids;
      continue;
    end if;
    -- A statement of its own, after the lock, so that it sees what the last owner of the lock has committed.
    select coalesce(array_agg(id), '{}'), coalesce(bool_or(state = 'blocked'), false) into next, has_blocked
    from jobs_group_next(candidate.group_key);
    if has_blocked and not jobs_unblock(array[candidate.group_key]) then
      refused := refused || candidate.ids;
      continue;
    end if;
    continue when candidate.ids <@ next;
    blocked := blocked || array(select id from unnest(candidate.ids) as id where id <> all (next));
    crowded := crowded || candidate.group_key;
    free := free || next;
  end loop;
  update jobs set state = 'blocked' where id = any (blocked);
  with later as (
    select l.id from unnest(crowded) as g (group_key) cross join lateral (
      select j.id from jobs j where j.group_key = g.group_key and j.state = 'ready' and j.id <> all (free)
      order by j.priority desc, j.id limit 1000 for update skip locked
    ) l
  )
  update jobs j set state = 'blocked' from later where j.id = later.id;
  return refused;
end
$function$;
