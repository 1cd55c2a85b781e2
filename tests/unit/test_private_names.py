"""What begins with an underscore is its module's own."""

from __future__ import annotations

import ast

from tests.servers import HOUSE


def test_no_module_takes_a_private_name_of_another():
    taken = []
    seen = 0
    for file in sorted((HOUSE / "src" / "octop").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("octop"):
                seen += len(node.names)
                private = [
                    each.name for each in node.names if each.name.startswith("_") and not each.name.endswith("__")
                ]
                taken += [f"{file.relative_to(HOUSE)}:{node.lineno} {node.module}.{name}" for name in private]
    assert seen > 500
    assert taken == []
