-- The functions of the jobs, version 2: claims, in two thirds of the time that those of version 1 take.
-- Inputs: none; "{schema}" is replaced by the name of the schema.
-- Result: none.
--
-- The functions of version 1 stay for the processes that still call them while a fleet is updated.

-- A claimed row finds place beside what it was, in the page that is locked and in memory anyway.
alter table "{schema}".jobs set (fillfactor = 50);

-- Claims up to wanted jobs of the names handled, for term_ms. known is null, or the jobs that the claimant knows it has:
-- what it has beyond them is delivered once more, because the answer that brought it was lost.
-- Answers a JSON text { jobs: [[id, [name, unique_key, group_key], payload, priority, attempt, failures, max_attempts,
-- enqueued_at]], again_ms }: after how long asking again may bring more, null when no time is known.
create function "{schema}".jobs_claim_2(handled text[], wanted integer, claimant text, term_ms bigint, known bigint[])
returns text language plpgsql set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  asked_at timestamptz := clock_timestamp();
  more boolean := false;
  -- Where the rows are. They are locked, so they stay there, and are not looked up again.
  places tid[];
  again tid[];
  grouped bigint[];
  refused bigint[];
  leased_until timestamptz;
  again_ms double precision;
  answer text;
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
  select array_agg(c.place), array_agg(c.id) filter (where c.group_key is not null) into places, grouped
  from (
    select j.* from unnest(handled) as h (name) cross join lateral (
      select r.ctid as place, r.id, r.priority, r.group_key from jobs r where r.state = 'ready' and r.name = h.name
      order by r.priority desc, r.id limit wanted for update skip locked
    ) j order by j.priority desc, j.id limit wanted
  ) c;
  more := more or cardinality(places) = wanted;
  if grouped is not null then
    refused := jobs_refuse_groups(grouped);
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
  ) into answer from claimed;

  if more then
    again_ms := 0;
  else
    select ceil(extract(epoch from min(due_at) - clock_timestamp()) * 1000) into again_ms
    from jobs where state in ('delayed', 'running') and due_at > asked_at;
    -- Somebody else is at one of these groups at this very moment, and tells when it is through; unless it gives up.
    if cardinality(refused) > 0 then
      again_ms := least(again_ms, 200);
    end if;
  end if;
  return concat('{"jobs":[', answer, '],"again_ms":', coalesce(again_ms::text, 'null'), '}');
end
$function$;
