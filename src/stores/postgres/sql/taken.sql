-- Which of these keys have a room that one session has kept locked for a while. A call that waits for a further lock is not the cause: it
-- ends, or goes on, once the session that it waits for does. A session without a transaction has the lock for itself.
-- $1 the keys
select key from pg_catalog.unnest($1::text::text[]) as key
where (pg_catalog.hashtext(key) operator(pg_catalog.&) 1023)::bigint operator(pg_catalog.=) any (array(
  select held.objid::bigint from pg_catalog.pg_locks as held
  where held.locktype operator(pg_catalog.=) 'advisory' and held.granted
    and held.classid::bigint operator(pg_catalog.=) 1212236372 and held.objsubid operator(pg_catalog.=) 2
    and held.database operator(pg_catalog.=) (
      select oid from pg_catalog.pg_database where datname operator(pg_catalog.=) pg_catalog.current_database()
    )
    and not exists (
      select from pg_catalog.pg_locks as wanted
      where wanted.pid operator(pg_catalog.=) held.pid and not wanted.granted
        and wanted.locktype operator(pg_catalog.=) 'advisory' and wanted.objsubid operator(pg_catalog.=) 2
        and wanted.classid::bigint operator(pg_catalog.=) 1212236372
    )
    and not exists (
      select from pg_catalog.pg_stat_activity as session
      where session.pid operator(pg_catalog.=) held.pid
        and (
          session.xact_start operator(pg_catalog.>) (pg_catalog.clock_timestamp() operator(pg_catalog.-) '1.5 s'::interval)
          -- Of the sessions of other roles one may see only who waits for them, and since when.
          or session.xact_start is null and coalesce(session.state, 'disabled') operator(pg_catalog.=) 'disabled' and not exists (
            select from pg_catalog.pg_locks as late
            where late.locktype operator(pg_catalog.=) 'advisory' and not late.granted and late.objsubid operator(pg_catalog.=) 2
              and late.database operator(pg_catalog.=) held.database and late.classid operator(pg_catalog.=) held.classid and late.objid operator(pg_catalog.=) held.objid
              and late.waitstart operator(pg_catalog.<) (pg_catalog.clock_timestamp() operator(pg_catalog.-) '1.5 s'::interval)
          )
        )
    )
))
