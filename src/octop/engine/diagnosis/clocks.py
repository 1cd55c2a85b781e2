"""The clock and the zones of the server, for a comparison with those of Python."""

from collections.abc import Sequence

from octop.engine.call import Call
from octop.engine.rows import Row, only


def server_seconds() -> Call[float]:
    """Read the server's clock: seconds since 1970."""
    return Call("select extract(epoch from clock_timestamp())::float8", {}, lambda rows: float(rows[0][0]))


def zone_offsets(zones: Sequence[str], years: int) -> Call[Row]:
    """Read the offsets of zones from UTC, week by week over the next years.

    Args:
        zones: Names of the IANA data base; those that the server does not know are left out.
        years: How far ahead.

    Returns:
        moments: Seconds since 1970, in order; offsets: by zone, seconds east of UTC at each of the moments.
    """
    return Call(
        """
        with moments as materialized (
          select t from generate_series(date_trunc('day', now()), now() + make_interval(years => %(years)s::integer), interval '7 days') t),
        zones as materialized (
          select n.name from pg_timezone_names n where n.name = any (%(zones)s::text[]))
        select jsonb_build_object(
          'moments', (select jsonb_agg(extract(epoch from m.t)::bigint order by m.t) from moments m),
          'offsets', (select coalesce(jsonb_object_agg(z.name, (
                         select jsonb_agg(extract(epoch from (m.t at time zone z.name) - (m.t at time zone 'UTC'))::integer order by m.t)
                           from moments m)), '{}') from zones z))
        """,
        {"zones": list(zones), "years": years},
        only,
    )
