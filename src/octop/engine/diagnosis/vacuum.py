"""Dead rows, and who keeps vacuum from removing them."""

from octop.engine.call import Call, first_value
from octop.engine.diagnosis.words import ours
from octop.engine.rows import Row, objects


def may_see_all_sessions() -> Call[bool]:
    """Tell whether this login sees what others' sessions do."""
    return Call("select pg_has_role('pg_read_all_stats', 'usage')", {}, lambda rows: bool(first_value(rows)))


def transactions(seconds: float) -> Call[list[Row]]:
    """Read the transactions of this database that hold back vacuum for longer: pid, login, application, state, seconds."""
    return Call(
        """
        select jsonb_build_object('pid', a.pid, 'login', a.usename, 'application', a.application_name, 'state', a.state,
                                  'seconds', extract(epoch from clock_timestamp() - a.xact_start))
          from pg_stat_activity a
         where a.datname = current_database() and a.pid <> pg_backend_pid() and a.backend_type = 'client backend'
           and (a.backend_xmin is not null or a.backend_xid is not null)
           and a.xact_start <= clock_timestamp() - make_interval(secs => %(seconds)s::float8)
         order by a.xact_start
        """,
        {"seconds": seconds},
        objects,
    )


def prepared(seconds: float) -> Call[list[Row]]:
    """Read the prepared transactions of this database that are older: gid, owner, seconds."""
    return Call(
        """
        select jsonb_build_object('gid', p.gid, 'owner', p.owner, 'seconds', extract(epoch from clock_timestamp() - p.prepared))
          from pg_prepared_xacts p
         where p.database = current_database() and p.prepared <= clock_timestamp() - make_interval(secs => %(seconds)s::float8)
         order by p.prepared
        """,
        {"seconds": seconds},
        objects,
    )


def slots() -> Call[list[Row]]:
    """Read the replication slots that nobody uses: name, kind, holds_rows (does it hold back vacuum?), bytes (of WAL kept)."""
    return Call(
        """
        select jsonb_build_object('name', s.slot_name, 'kind', s.slot_type,
                                  'holds_rows', s.xmin is not null or s.catalog_xmin is not null,
                                  'bytes', case when not pg_is_in_recovery() then pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn) end)
          from pg_replication_slots s
         where not s.active and not s.temporary and (s.database is null or s.database = current_database())
         order by s.slot_name
        """,
        {},
        objects,
    )


def has_standbys() -> Call[bool]:
    """Tell whether there are standbys; their feedback is seen with pg_read_all_stats alone."""
    return Call("select exists (select from pg_stat_replication)", {}, lambda rows: bool(first_value(rows)))


def standbys(transactions: int) -> Call[list[Row]]:
    """Read the standbys whose feedback holds back vacuum by more transactions: pid, name, address, slot, transactions.

    One that uses a replication slot leaves its feedback there, not with its session.
    """
    return Call(
        """
        select jsonb_build_object('pid', r.pid, 'name', r.application_name, 'address', host(r.client_addr), 'slot', s.slot_name,
                                  'transactions', greatest(age(r.backend_xmin), age(s.xmin)))
          from pg_stat_replication r
          left join pg_replication_slots s on s.active_pid = r.pid and s.slot_type = 'physical'
         where greatest(age(r.backend_xmin), age(s.xmin)) > %(transactions)s::integer order by r.pid
        """,
        {"transactions": transactions},
        objects,
    )


def holders(seconds: float) -> Call[list[Row]]:
    """Read who keeps vacuum from removing what died, the oldest first: kind, name, pid, application, state, transactions, seconds.

    Kinds are session, prepared transaction, replication slot and standby. A slot holds back rows of tables with its xmin alone: its
    catalog_xmin is about the catalog.

    Args:
        seconds: Sessions and prepared transactions that are younger are left out.
    """
    return Call(
        """
        with h as (
          select 'session' as kind, a.usename::text as name, a.pid, a.application_name as application, a.state,
                 greatest(age(a.backend_xmin), age(a.backend_xid)) as transactions, a.xact_start as since
            from pg_stat_activity a
           where a.datname = current_database() and a.pid <> pg_backend_pid() and a.backend_type = 'client backend'
             and a.xact_start <= clock_timestamp() - make_interval(secs => %(seconds)s::float8)
          union all
          select 'prepared transaction', p.gid, null, null, null, age(p.transaction), p.prepared
            from pg_prepared_xacts p
           where p.database = current_database() and p.prepared <= clock_timestamp() - make_interval(secs => %(seconds)s::float8)
          union all
          select 'replication slot', s.slot_name::text, s.active_pid, null, null, age(s.xmin), null from pg_replication_slots s
          union all
          select 'standby', coalesce(nullif(r.application_name, ''), host(r.client_addr)), r.pid, null, null, age(r.backend_xmin),
                 r.backend_start
            from pg_stat_replication r)
        select jsonb_build_object('kind', h.kind, 'name', h.name, 'pid', h.pid, 'application', h.application, 'state', h.state,
                                  'transactions', h.transactions, 'seconds', extract(epoch from clock_timestamp() - h.since))
          from h where h.transactions > 0
         order by h.transactions desc, h.since limit 10
        """,
        {"seconds": seconds},
        objects,
    )


def tables(schema: str) -> Call[list[Row]]:
    """Read our tables with their dead rows: name, dead, live, threshold (where autovacuum begins), off, vacuumed_seconds."""
    return Call(
        """
        with o as (
          select c.oid, c.relname, c.relpages,
                 lower(x.set ->> 'autovacuum_enabled') as enabled,
                 coalesce(x.set ->> 'autovacuum_vacuum_threshold', current_setting('autovacuum_vacuum_threshold'))::float8 as threshold,
                 coalesce(x.set ->> 'autovacuum_vacuum_scale_factor', current_setting('autovacuum_vacuum_scale_factor'))::float8 as scale
            from pg_class c
            cross join lateral (select jsonb_object_agg(o.option_name, o.option_value) as set from pg_options_to_table(c.reloptions) o) x
           where c.relnamespace = (select n.oid from pg_namespace n where n.nspname = %(schema)s::text)
             and (c.relname = any (%(relations)s::text[]) or c.relname ~ '^octop_tasks_done_[0-9]{8}$') and c.relkind = 'r')
        select jsonb_build_object('name', o.relname, 'dead', s.n_dead_tup, 'live', s.n_live_tup,
                                  'threshold', o.threshold + o.scale * s.n_live_tup,
                                  'off', coalesce(starts_with('false', o.enabled) or o.enabled in ('off', 'of', 'no', 'n', '0'), false),
                                  'vacuumed_seconds', extract(epoch from clock_timestamp() - greatest(s.last_autovacuum, s.last_vacuum)))
          from o join pg_stat_user_tables s on s.relid = o.oid
         order by s.n_dead_tup desc, o.relname
        """,
        {"schema": schema, "relations": ours()["relations"]},
        objects,
    )
