"""How the schema differs from the picture that this package brings, and the statements that put it right."""

from collections.abc import Iterator

from octop.engine.diagnosis.picture import Picture
from octop.engine.diagnosis.words import Difference, name, within
from octop.engine.rows import Row

NOT_VALID = " NOT VALID"


def differences(expected: Picture, found: Picture, schema: str, owner: str) -> Iterator[Difference]:
    """Compare what is there with what should be; what others have added, such as an index of their own, is left alone.

    Their triggers on our tables and columns in them are not: these run within our transactions, and those are lost when a task
    is moved.

    Args:
        expected: The picture of the package.
        found: What is there.
        schema: Where.
        owner: The role that owns the installation.
    """
    comparison = _Comparison(expected, found, schema, owner)
    yield from comparison.tables()
    yield from comparison.parts()
    yield from comparison.triggers_of_others()
    yield from comparison.columns_of_others()
    yield from comparison.functions()


class _Comparison:
    def __init__(self, expected: Picture, found: Picture, schema: str, owner: str) -> None:
        self.expected, self.found, self.schema, self.owner = expected, found, schema, owner

    def tables(self) -> Iterator[Difference]:
        for table, wanted in self.expected.tables.items():
            there = self.found.tables.get(table)
            if wanted["kind"] == "view":
                yield from self.view(table, wanted, there)
            elif there is None:
                yield self.missing_table(table, wanted)
            elif wanted["kind"] == "table":
                yield from self.attachment(table, wanted, there)
                yield from self.columns(table, wanted, there)

    def parts(self) -> Iterator[Difference]:
        for (kind, table, part), wanted in self.expected.parts.items():
            if table not in self.found.tables and kind != "trigger":
                continue  # made with the table
            there = self.found.parts.get((kind, table, part))
            if kind == "index":
                yield from self.index(part, wanted, there)
            elif kind == "constraint":
                yield from self.constraint(table, part, wanted, there)
            else:
                yield from self.trigger(table, part, wanted, there)

    def triggers_of_others(self) -> Iterator[Difference]:
        for kind, table, part in self.found.parts:
            if kind == "trigger" and table in self.expected.tables and (kind, table, part) not in self.expected.parts:
                line = f"drop trigger {name(part)} on {within(self.schema, table)};"
                yield Difference("schema.foreign_trigger", f"the trigger {part} on {table} is not ours", (line,))

    def columns_of_others(self) -> Iterator[Difference]:
        for table, wanted in self.expected.tables.items():
            there = self.found.tables.get(table, wanted)
            if wanted["kind"] != "table" or (wanted.get("partition_of") and there.get("partition_of")):
                continue  # a partition has its parent's
            ours = {each["name"] for each in wanted["columns"]}
            for column in (each["name"] for each in there["columns"] if each["name"] not in ours):
                line = f"alter table {within(self.schema, table)} drop column {name(column)};"
                hint = "What stands in it is lost then: copy it away first, by id."
                yield Difference("schema.foreign_column", f"the column {table}.{column} is not ours", (line,), hint)

    def functions(self) -> Iterator[Difference]:
        for function, wanted in self.expected.functions.items():
            there = self.found.functions.get(function)
            if there is None:
                yield Difference("schema.code_differs", f"the function {function} is missing", again=True)
            elif there["body"] != wanted["body"] or there["manner"] != wanted["manner"]:
                what = "body" if there["body"] != wanted["body"] else "declaration"
                yield Difference("schema.code_differs", f"the function {function} has another {what}", again=True)

    # --- tables and views ---

    def view(self, view: str, wanted: Row, there: Row | None) -> Iterator[Difference]:
        if there is None:
            yield Difference("schema.code_differs", f"the view {view} is missing", again=True)
        elif there["text"] != wanted["text"] or _columns(there) != _columns(wanted):
            # CREATE OR REPLACE can only add columns at the end
            fits = _columns(wanted)[: len(_columns(there))] == _columns(there)
            drop = () if fits else (f"drop view {within(self.schema, view)};",)
            yield Difference("schema.code_differs", f"the view {view} is another one", drop, again=True)

    def missing_table(self, table: str, wanted: Row) -> Difference:
        if wanted["kind"] == "sequence":
            return Difference(
                "schema.table_missing",
                f"the sequence {table} is missing",
                self.as_owner(f"create sequence {table};"),
            )
        parts = [(key, part) for key, part in self.expected.parts.items() if key[1] == table and key[0] != "trigger"]
        lines = [self.create(table, wanted)]
        lines += [
            f"alter table {table} add constraint {part} {row['definition']};"
            for (kind, _, part), row in parts
            if kind == "constraint"
        ]
        lines += [
            f"{row['definition'].replace(' ON ONLY ', ' ON ')};" for (kind, _, _), row in parts if kind == "index"
        ]
        return Difference("schema.table_missing", f"the table {table} is missing", self.as_owner(*lines))

    def create(self, table: str, wanted: Row) -> str:
        unlogged = "unlogged " if wanted.get("unlogged") else ""
        by = f" partition by {wanted['partition_by']}" if wanted.get("partition_by") else ""
        if wanted.get("partition_of"):
            return f"create table {table} partition of {wanted['partition_of']} {wanted['bound']}{by};"
        columns = ", ".join(_column(each) for each in wanted["columns"])
        return f"create {unlogged}table {table} ({columns}){by};"

    def attachment(self, table: str, wanted: Row, there: Row) -> Iterator[Difference]:
        parent = wanted.get("partition_of")
        if parent and there.get("partition_of") != parent:
            yield Difference(
                "schema.table_differs",
                f"the table {table} is no partition of {parent}",
                self.as_owner(f"alter table {parent} attach partition {table} {wanted['bound']};"),
            )
        if bool(wanted.get("unlogged")) != bool(there.get("unlogged")):
            word = "unlogged" if wanted.get("unlogged") else "logged"
            yield Difference(
                "schema.table_differs",
                f"the table {table} is not {word}",
                self.as_owner(f"alter table {table} set {word};"),
            )

    def columns(self, table: str, wanted: Row, there: Row) -> Iterator[Difference]:
        if wanted.get("partition_of") and there.get("partition_of"):
            return  # its parent says it
        found = {each["name"]: each for each in there["columns"]}
        for each in wanted["columns"]:
            column = each["name"]
            if column not in found:
                line = f"alter table {table} add column {_column(each)};"
                yield Difference("schema.table_differs", f"the column {table}.{column} is missing", self.as_owner(line))
                continue
            lines = list(_changes(each, found[column]))
            if lines:
                yield Difference(
                    "schema.table_differs",
                    f"the column {table}.{column} has another type, default or null rule",
                    self.as_owner(*(f"alter table {table} alter column {column} {line};" for line in lines)),
                )

    # --- parts ---

    def index(self, index: str, wanted: Row, there: Row | None) -> Iterator[Difference]:
        make = f"{wanted['definition'].replace(' ON ONLY ', ' ON ')};"
        if " ON ONLY " not in wanted["definition"]:
            make = make.replace("CREATE INDEX", "CREATE INDEX CONCURRENTLY").replace(
                "CREATE UNIQUE INDEX", "CREATE UNIQUE INDEX CONCURRENTLY"
            )
        path = f"set search_path = {name(self.schema)}, pg_temp;"
        if there is None:
            yield Difference("schema.index_missing", f"the index {index} is missing", (path, make))
        elif there["definition"] != wanted["definition"]:
            drop = f"drop index {within(self.schema, index)};"
            yield Difference("schema.index_missing", f"the index {index} is another one", (path, drop, make))
        elif there["state"]:
            line = f"reindex index concurrently {within(self.schema, index)};"
            yield Difference("schema.index_invalid", f"the index {index} is invalid", (line,))

    def constraint(self, table: str, part: str, wanted: Row, there: Row | None) -> Iterator[Difference]:
        where = f"alter table {within(self.schema, table)}"
        add = f"{where} add constraint {part} {wanted['definition']};"
        if there is None:
            yield Difference("schema.constraint_differs", f"the constraint {part} is missing", (add,))
        elif there["definition"].removesuffix(NOT_VALID) != wanted["definition"]:
            drop = f"{where} drop constraint {part};"
            yield Difference("schema.constraint_differs", f"the constraint {part} is another one", (drop, add))
        elif there["state"] == "not valid":
            line = f"{where} validate constraint {part};"
            yield Difference("schema.constraint_differs", f"the constraint {part} is not validated", (line,))
        elif there["state"]:
            line = f"reindex index concurrently {within(self.schema, part)};"
            yield Difference("schema.index_invalid", f"the index of the constraint {part} is invalid", (line,))

    def trigger(self, table: str, part: str, wanted: Row, there: Row | None) -> Iterator[Difference]:
        if there is None:
            yield Difference("schema.code_differs", f"the trigger {part} on {table} is missing", again=True)
        elif there["definition"] != wanted["definition"]:
            yield Difference("schema.code_differs", f"the trigger {part} on {table} is another one", again=True)
        elif there["state"]:
            line = f"alter table {within(self.schema, table)} enable trigger {part};"
            yield Difference("schema.trigger_disabled", f"the trigger {part} on {table} is {there['state']}", (line,))

    def as_owner(self, *lines: str) -> tuple[str, ...]:
        path = f"set local search_path = {name(self.schema)}, pg_temp;"
        return ("begin;", f"set local role {name(self.owner)};", path, *lines, "commit;")


def _columns(view: Row) -> list[tuple[str, str]]:
    return [(each["name"], each["type"]) for each in view["columns"]]


def _column(column: Row) -> str:
    words = [column["name"], column["type"]]
    if column.get("default") == "identity":
        words.append("generated always as identity")
    elif column.get("default"):
        words.append(f"default {column['default']}")
    return " ".join([*words, "not null"] if column.get("not_null") else words)


def _changes(wanted: Row, there: Row) -> Iterator[str]:
    if wanted["type"] != there["type"]:
        yield f"type {wanted['type']}"
    if wanted.get("default") != there.get("default"):
        default = wanted.get("default")
        if default == "identity":
            yield "add generated always as identity"
        else:
            yield f"set default {default}" if default else "drop default"
    if bool(wanted.get("not_null")) != bool(there.get("not_null")):
        yield "set not null" if wanted.get("not_null") else "drop not null"
