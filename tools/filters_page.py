"""Write `docs/reference/filters.md` from the parser's own table of keys. A test compares.

python tools/filters_page.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from octop.model.filter_values import DAYS, KEYS, UNITS, Key, Kind
from octop.model.filters import OFFSET_MAX, WILDCARDS_MAX, WORD_CHARACTERS_MAX, WORDS_MAX, YEARS

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "filters.md"

TAKES: Final[dict[Kind, str]] = {
    "status": "a status",
    "text": "text",
    "words": "text inside it",
    "id": "hexadecimal digits",
    "number": "whole numbers",
    "moment": "moments",
    "document": "text or numbers",
}


def row(key: Key) -> str:
    """Return the row of one key."""
    name = f"`{key.name}.PATH`" if key.kind == "document" else f"`{key.name}`"
    also = f", `{'`, `'.join(key.aliases)}`" if key.aliases else ""
    examples = ", ".join(f"`{example}`" for example in key.examples)
    return f"| {name}{also} | {TAKES[key.kind]} | {key.meaning} | {examples} |\n"


def page() -> str:
    """Return the whole page."""
    return f"""# Filters

This page is generated from the parser's table of keys by `tools/filters_page.py`; `octop help filters` says the same.

One grammar for every command that means several tasks: `octop tasks list`, `octop tasks retry`, `octop tasks cancel`, `octop tasks delete`, `octop tasks export`, `octop failures`.
A filter is a list of words. A word is `key:value`, and a task must satisfy all words.

```
octop tasks list status:failed,frozen type:send_*
octop tasks list queue:mail -tag:test 'created:>-1h'
octop tasks retry type:send_* created:-1h.. --dry-run
octop tasks cancel status:blocked payload.user.id:42 --yes
octop tasks export completed:yesterday --format csv -o yesterday.csv
```

The options `--status`, `--queue`, `--type`, `--tenant` and `--since` are short forms of words, and go together with them.

## Keys

| key | takes | meaning | for example |
|---|---|---|---|
{"".join(map(row, KEYS))}
## Values

| written | means |
|---|---|
| `type:a,b` | one of several |
| `type:send_*` | `*` stands for any characters, also none; at most {WILDCARDS_MAX} in a value |
| `error:"time out: *"` | in double quotes nothing has a meaning: no space, colon, comma, `*`, `>` or `..`; a quote inside is `\\"` |
| `type:a\\*b` | after a backslash the next character has no meaning |
| `lane:""` | empty text |
| `attempt:>3`, `>=3`, `<3`, `<=3` | more or less, later or earlier |
| `attempt:3..5`, `3..`, `..5` | a range, both ends included |
| `created:>-1h`, `scheduled:<+2d` | a moment so long ago, or ahead: {", ".join(f"`{unit}`" for unit in UNITS)}, also together as in `-1h30m`; at most {OFFSET_MAX.days // 365} years |
| `created:-1h`, `scheduled:+2d` | between that moment and now |
| `created:today` | a whole day in UTC, as history is kept: {", ".join(f"`{day}`" for day in DAYS)} |
| `completed:2030-01-31+08:00` | a whole day in its zone; `2030-01-31Z` in UTC |
| `created:>=2030-01-31T09:00:00+08:00` | a moment with its zone, in the years {YEARS.start} to {YEARS.stop - 1}; one without a zone is refused |

Now is the database's now, fixed when the command begins.

Text is compared exactly, large and small letters apart; only `error` looks inside the text, and does not tell them apart. In `payload`, `result` and `meta`, `42` means the number and the text; `"42"` means the text alone.
`payload.user:*` is met where there is any value; JSON's null counts as none. A path goes on into lists by position: `payload.items.0.name:x`.

## Not

`-status:failed` is met by every task that is not failed, also by one that has no such value: `-tag:vip`, `-error:*`. `!status:failed` and `not:status:failed` mean the same.

## In a shell

A shell takes `>` and `<` for files and `*` for names of files: quote such words, or write ranges.

```
octop tasks list 'attempt:>3' 'type:send_*'
octop tasks list attempt:4.. created:-1h..
```

A filter has at most {WORDS_MAX} words of at most {WORD_CHARACTERS_MAX:,} characters. What is not understood is refused with the word, the reason and the nearest key; a filter is never understood in part.

## What is quick

With a status only the partitions that can hold it are read: `status:failed` never looks at history. `queue`, `type`, `lane`, `tenant`, `id`, `created`, `scheduled` and `completed` are compared with columns as they are; all other keys are looked at task by task, some
hundred thousand in a second. The latest come first, so that a list with `--limit` ends as soon as it is full.
"""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
