-- The function with which programs in other languages enqueue jobs, version 1. Its name, its arguments, its options and its error code
-- stay. All other functions are the library's own, and change with it.
-- Inputs: none; "{schema}" is replaced by the name of the schema.
-- Result: none.

-- Enqueues one job in the caller's transaction. The options have the names and the meanings of those of jobs.enqueue(); null stands for
-- one that is not given. Answers the id of the job, or null if its key is taken. Raises 22023 (invalid_parameter_value).
create function "{schema}".enqueue(name text, payload jsonb default 'null', options jsonb default '{}') returns bigint
language plpgsql set search_path = "{schema}", pg_temp as $function$
#variable_conflict use_variable
declare
  given jsonb := jsonb_strip_nulls(coalesce(options, '{}'));
  text_payload text := coalesce(payload, 'null')::text;
  unknown_option text;
  own_key text := jobs_option_text(given, 'key');
  of_group text := jobs_option_text(given, 'group');
  of_group_limit integer := jobs_option_count(given, 'groupLimit', 1, 1, 1000);
  own_priority smallint := jobs_option_count(given, 'priority', 0, -32768, 32767);
  most_attempts integer := jobs_option_count(given, 'maxAttempts', 10, 1, 1000);
  first_backoff_ms bigint := jobs_option_ms(given, 'backoff', 1000);
  most_backoff_ms bigint := jobs_option_ms(given, 'maxBackoff', 3600000);
  delay_ms bigint := jobs_option_ms(given, 'delay', null);
  run_at timestamptz := jobs_option_instant(given, 'runAt');
  unique_for text := coalesce(given ->> 'uniqueFor', 'waiting');
  key_ms bigint;
  if_taken text := coalesce(given ->> 'ifTaken', 'keep');
  own_children bigint[] := jobs_option_ids(given, 'children');
  policy text := coalesce(given ->> 'ifChildFails', 'cancel');
begin
  if jsonb_typeof(given) <> 'object' then
    perform jobs_refuse_option('options', 'a JSON object', given);
  end if;
  select o into unknown_option from jsonb_object_keys(given) as o where o not in (
    'priority', 'delay', 'runAt', 'key', 'uniqueFor', 'ifTaken', 'group', 'groupLimit', 'maxAttempts', 'backoff', 'maxBackoff',
    'children', 'ifChildFails'
  ) limit 1;
  if unknown_option is not null then
    perform jobs_refuse_option('options', 'options of jobs.enqueue()', to_jsonb(unknown_option));
  end if;
  perform jobs_option_text(jsonb_build_object('name', name), 'name');
  if octet_length(text_payload) > 1048576 then
    perform jobs_refuse_option('payload', 'at most 1048576 bytes of JSON', to_jsonb(octet_length(text_payload)));
  end if;
  if delay_ms is not null and run_at is not null then
    perform jobs_refuse_option('runAt', 'left out beside `delay`', given -> 'runAt');
  end if;
  if of_group is null and given ? 'groupLimit' then
    perform jobs_refuse_option('group', 'given beside `groupLimit`', null);
  end if;
  if if_taken not in ('keep', 'update', 'postpone') then
    perform jobs_refuse_option('ifTaken', 'keep, update or postpone', given -> 'ifTaken');
  end if;
  if policy not in ('cancel', 'run', 'wait') then
    perform jobs_refuse_option('ifChildFails', 'cancel, run or wait', given -> 'ifChildFails');
  end if;
  if own_children is null then
    if given ? 'ifChildFails' then
      perform jobs_refuse_option('children', 'given beside `ifChildFails`', null);
    end if;
    policy := null;
  elsif if_taken <> 'keep' then
    perform jobs_refuse_option('ifTaken', 'left out beside `children`', given -> 'ifTaken');
  end if;
  if unique_for not in ('waiting', 'running') then
    key_ms := jobs_option_ms(given, 'uniqueFor', null);
  end if;
  if unique_for = 'waiting' and if_taken = 'keep' then
    return jobs_enqueue_one(
      name, text_payload, own_priority, own_key, of_group, of_group_limit, most_attempts, first_backoff_ms, most_backoff_ms, delay_ms,
      run_at, own_children => own_children, policy => policy
    );
  end if;
  if own_key is null then
    perform jobs_refuse_option('key', 'given beside `uniqueFor` or `ifTaken`', null);
  end if;
  return jobs_enqueue_unique(
    name, text_payload, own_priority, own_key, of_group, of_group_limit, most_attempts, first_backoff_ms, most_backoff_ms, delay_ms,
    run_at, unique_for <> 'waiting', key_ms, if_taken, own_children => own_children, policy => policy
  );
end
$function$;

comment on function "{schema}".enqueue(text, jsonb, jsonb) is
  'holdfast: enqueues a job in the transaction of the caller. Answers its id, or null if its key is taken.';

create function "{schema}".jobs_refuse_option(option text, what text, got jsonb) returns void language plpgsql as $function$
begin
  raise exception using errcode = 'invalid_parameter_value',
    message = format('Expected `%s` to be %s, got %s.', option, what, coalesce(left(got::text, 60), 'nothing'));
end
$function$;

create function "{schema}".jobs_option_text(given jsonb, option text) returns text language plpgsql
set search_path = "{schema}", pg_temp as $function$
begin
  if given ? option and not coalesce(
    jsonb_typeof(given -> option) = 'string' and octet_length(given ->> option) between 1 and 500, false
  ) then
    perform jobs_refuse_option(option, 'a text of 1 to 500 bytes', given -> option);
  end if;
  return given ->> option;
end
$function$;

create function "{schema}".jobs_option_count(given jsonb, option text, otherwise integer, smallest integer, largest integer)
returns integer language plpgsql set search_path = "{schema}", pg_temp as $function$
declare
  value numeric;
begin
  if not given ? option then
    return otherwise;
  end if;
  if jsonb_typeof(given -> option) = 'number' then
    value := (given ->> option)::numeric;
  end if;
  if not coalesce(value between smallest and largest and value = trunc(value), false) then
    perform jobs_refuse_option(option, format('a whole number from %s to %s', smallest, largest), given -> option);
  end if;
  return value;
end
$function$;

-- Each id once. Null: none.
create function "{schema}".jobs_option_ids(given jsonb, option text) returns bigint[] language plpgsql
set search_path = "{schema}", pg_temp as $function$
begin
  if not given ? option then
    return null;
  end if;
  if jsonb_typeof(given -> option) = 'array' then
    if jsonb_array_length(given -> option) <= 1000
      and not exists (select from jsonb_array_elements_text(given -> option) as id where id !~ '^[1-9][0-9]{0,17}$' or id is null)
    then
      return nullif(array(select distinct id::bigint from jsonb_array_elements_text(given -> option) as id), '{}');
    end if;
  end if;
  perform jobs_refuse_option(option, 'an array of up to 1000 ids of jobs', given -> option);
end
$function$;

-- A duration in ms, from a number of ms or a text such as 1.5h.
create function "{schema}".jobs_option_ms(given jsonb, option text, otherwise bigint) returns bigint language plpgsql
set search_path = "{schema}", pg_temp as $function$
declare
  parts text[];
  ms numeric;
begin
  if not given ? option then
    return otherwise;
  end if;
  if jsonb_typeof(given -> option) = 'number' then
    ms := (given ->> option)::numeric;
  elsif jsonb_typeof(given -> option) = 'string' then
    parts := regexp_match(given ->> option, '^([0-9]{1,12}(?:[.][0-9]{1,12})?) ?(ms|s|m|h|d)$');
    ms := parts[1]::numeric * case parts[2]
      when 'ms' then 1 when 's' then 1000 when 'm' then 60000 when 'h' then 3600000 when 'd' then 86400000
    end;
  end if;
  if not coalesce(ms between 0 and 2073600000, false) then
    perform jobs_refuse_option(
      option, 'a duration from 0 ms to 24 days (milliseconds, or "250ms", "30s", "5m", "1h", "2d")', given -> option
    );
  end if;
  return ceil(ms);
end
$function$;

create function "{schema}".jobs_option_instant(given jsonb, option text) returns timestamptz language plpgsql
set search_path = "{schema}", pg_temp as $function$
begin
  if not given ? option then
    return null;
  end if;
  if given ->> option ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)$' then
    return (given ->> option)::timestamptz;
  end if;
  perform jobs_refuse_option(option, 'a time with its zone, such as "2026-11-23T05:00:00Z"', given -> option);
exception when datetime_field_overflow or invalid_time_zone_displacement_value then
  perform jobs_refuse_option(option, 'a time with its zone, such as "2026-11-23T05:00:00Z"', given -> option);
end
$function$;
