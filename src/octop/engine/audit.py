"""The settings that rule while it runs, and who changed what: reads of ``octop_config`` and ``octop_audit``."""

from collections.abc import Mapping

from octop.engine.call import Call
from octop.engine.rows import Row, many


def list_config() -> Call[list[Row]]:
    """Read all settings: key, value, default, minimum, maximum, kind, alias_of, description, updated_at."""
    return many(
        """
        select jsonb_build_object('key', k.key, 'value', coalesce(c.value -> 'value', k.default_value),
                                  'default', k.default_value,
                                  'minimum', k.minimum, 'maximum', k.maximum, 'kind', k.kind, 'alias_of', k.alias_of,
                                  'description', k.description, 'updated_at', c.updated_at)
          from octop_config_keys() k left join octop_config c on c.key = k.key order by k.key
        """
    )


def config_origins() -> Call[Mapping[str, Row]]:
    """Read who changed each setting last and when, by key: ``role``, ``application``, ``at``."""
    return Call(
        """
        select to_jsonb(x) from octop_config_keys() k cross join lateral (
          select a.subject, a.role, a.application, a.at from octop_audit a
           where a.subject = k.key and a.action = 'config' order by a.seq desc limit 1) x
        """,
        {},
        lambda rows: {str(row[0]["subject"]): row[0] for row in rows},
    )


def audit(
    *,
    since_seconds: float | None = None,
    action: str | None = None,
    subject: str | None = None,
    role: str | None = None,
    limit: int = 50,
) -> Call[list[Row]]:
    """Read the latest acts of people and programs, the latest first.

    Args:
        since_seconds: Only those of so many last seconds.
        action: Only this one: ``pause``, ``retry``, ``set queue`` …
        subject: Only acts on this: an id, a key, or a name.
        role: Only what was done as this role, or by this login.
        limit: At most so many.
    """
    return many(
        """
        select to_jsonb(a) from (
          select * from octop_audit
           where (%(since)s::float8 is null or at >= _octop_now() - make_interval(secs => %(since)s::float8))
             and (%(action)s::text is null or action = %(action)s::text)
             and (%(subject)s::text is null or subject = %(subject)s::text)
             and (%(role)s::text is null or %(role)s::text in (role, login))
           order by seq desc limit %(limit)s) a
        """,
        {
            "since": since_seconds,
            "action": action,
            "subject": subject,
            "role": role,
            "limit": limit,
        },
    )
