"""The lane of a task by a field of its payload, as the decorator says it: ``lane_from="account_id"``."""

from collections.abc import Mapping
from typing import Final

from octop.model.errors import InvalidArgumentsError, InvalidNameError, InvalidOptionError
from octop.model.options import checked_name

_MISSING: Final = object()
__tracebackhide__ = True  # a test that fails in here shows the line that called


def checked_lane_field(value: object) -> str:
    """Return the payload field of ``lane_from=``, or refuse what is no name of one.

    Raises:
        InvalidOptionError: Not text, or empty.
    """
    if isinstance(value, str) and value:
        return value
    message = f"lane_from is the name of a payload field, not {value!r}"
    raise InvalidOptionError(
        message, hint='Write lane_from="account_id"; a field inside another one is "address.city".'
    )


def lane_of(values: Mapping[str, object], field: str, task_type: str) -> str:
    """Return the lane that a payload names: text as it is, a whole number in digits.

    Args:
        values: The payload, each value as JSON has it.
        field: Its field; a dot leads inside.
        task_type: For the message.

    Raises:
        InvalidArgumentsError: The field is not there, or holds neither text of 1 to 200 characters nor a whole number.

    Examples:
        >>> lane_of({"account": {"id": 42}}, "account.id", "bill")
        '42'
    """
    found: object = values
    for name in field.split("."):
        found = found.get(name, _MISSING) if isinstance(found, Mapping) else _MISSING
    if isinstance(found, int) and not isinstance(found, bool):
        found = str(found)
    if isinstance(found, str):
        try:
            return checked_name(found, f"the lane of {task_type}, which its field {field!r} names,")
        except InvalidNameError as error:
            raise InvalidArgumentsError(error.message, hint=_HINT) from None
    what = "is not there" if found is _MISSING else f"is {'null' if found is None else type(found).__name__}"
    message = f"the lane of {task_type} comes from its field {field!r}, which {what}: it takes text or a whole number"
    raise InvalidArgumentsError(message, hint=_HINT)


_HINT: Final = 'Nothing was enqueued. Pass it, or name the lane of this task: using(lane="…"); using(lane="") for none.'
