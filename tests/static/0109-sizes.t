#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No class of the product has more than 25 fields or 40 methods, no file has more than 500 lines, and no number
names two tests.

Prints the largest, and the longest functions. Reads the headers as clang-format leaves them: a member stands
at two spaces from its class, and what is wrapped stands deeper.
"""
import collections
import os
import re
import sys
from pathlib import Path

TOP = Path(os.environ.get("BELLOWS_SRCDIR") or Path(__file__).resolve().parents[2])
PARTS = ("common", "slurm", "checkpoint", "elastic", "modelstore", "paramserver", "pool", "image", "jobsubmit", "spank", "launcher")
MOST_FIELDS = 25
MOST_METHODS = 40
MOST_LINES = 500
# clang-tidy would count statements; a table or a switch of one line each is no long function.
LONG_FUNCTION = 50

CLASS = re.compile(r"^( *)(?:template <.*> )?(?:class|struct) (\w+)(?: final)?(?: :[^;]*)? \{$")
COMMENT = re.compile(r"\s*//.*")


def sources(*endings):
    return sorted(path for part in PARTS for path in (TOP / part).rglob("*") if path.suffix in endings)


def joined(lines):
    """Statements on one line each, with the indentation of their first."""
    statement = ""
    for line in lines:
        line = COMMENT.sub("", line.rstrip("\n"))
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        statement = statement + " " + line.strip() if statement else line
        if re.search(r"[;{}:]$", line):
            yield statement
            statement = ""


def members(statements, start, indent):
    """Fields and methods of the class whose statement is the one before `start`."""
    fields = methods = 0
    inside = " " * (indent + 2)
    for statement in statements[start:]:
        depth = len(statement) - len(statement.lstrip())
        if depth <= indent and statement.lstrip().startswith("}"):
            break
        if depth != indent + 2 or not statement.startswith(inside):
            continue
        text = statement.strip()
        if re.match(r"(using|typedef|friend|enum|class|struct|template <.*> (class|struct)|public|private|protected|\}|static_assert|~|union)", text):
            methods += text.startswith("~")
            continue
        if re.match(r"static constexpr |static const |inline ", text) and "(" not in text.split("=")[0]:
            continue
        # A parenthesis before any initializer makes it a method.
        methods += bool(re.search(r"\w\(|operator", re.split(r" = |\{", text, maxsplit=1)[0]))
        fields += not re.search(r"\w\(|operator", re.split(r" = |\{", text, maxsplit=1)[0])
    return fields, methods


def classes():
    for path in sources(".h", ".cc"):
        statements = list(joined(path.read_text().splitlines()))
        for number, statement in enumerate(statements):
            found = CLASS.match(statement)
            if found:
                fields, methods = members(statements, number + 1, len(found[1]))
                yield fields, methods, f"{path.relative_to(TOP)} {found[2]}"


def functions():
    """Definitions at the outer level: they begin at no indentation and end with a brace there."""
    for path in sources(".cc"):
        begun = 0
        name = ""
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.match(r"[A-Za-z].*\(", line) and not line.startswith(("#", "namespace", "extern", "constexpr", "const ")):
                begun, name = number, line.split("(")[0].split()[-1]
            elif line == "}" and begun:
                yield number - begun + 1, f"{path.relative_to(TOP)} {name}"
                begun = 0


def largest(values, key, count=3):
    return sorted(values, key=key, reverse=True)[:count]


def twins():
    numbers = collections.Counter(path.name[:4] for path in (TOP / "tests").glob("**/[0-9]*.t"))
    return [f"{count} tests have the number {number}" for number, count in sorted(numbers.items()) if count > 1]


def point(number, name, complaints, notes):
    print(f"{'not ok' if complaints else 'ok'} {number} - {name}")
    for line in complaints + notes:
        print("# " + line)
    return not complaints


def main():
    found = list(classes())
    lengths = [(len(path.read_text().splitlines()), str(path.relative_to(TOP))) for path in sources(".h", ".cc")]
    long = list(functions())
    held = point(
        1, f"no class has more than {MOST_FIELDS} fields",
        [f"{name}: {fields} fields" for fields, _, name in found if fields > MOST_FIELDS],
        [f"{fields} fields: {name}" for fields, _, name in largest(found, lambda one: one[0])])
    held &= point(
        2, f"no class has more than {MOST_METHODS} methods",
        [f"{name}: {methods} methods" for _, methods, name in found if methods > MOST_METHODS],
        [f"{methods} methods: {name}" for _, methods, name in largest(found, lambda one: one[1])])
    held &= point(
        3, f"no file has more than {MOST_LINES} lines",
        [f"{name}: {lines} lines" for lines, name in lengths if lines > MOST_LINES],
        [f"{lines} lines: {name}" for lines, name in largest(lengths, lambda one: one[0])])
    over = sum(lines > LONG_FUNCTION for lines, _ in long)
    point(4, f"{len(found)} classes, {len(lengths)} files and {len(long)} functions were read", [],
          [f"{over} functions have more than {LONG_FUNCTION} lines"]
          + [f"{lines} lines: {name}" for lines, name in largest(long, lambda one: one[0], 5)])
    held &= point(5, "no number names two tests", twins(), [])
    print("1..5")
    return 0 if held else 1


sys.exit(main())
