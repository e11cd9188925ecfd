#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every room includes only what the file `arrows` allows, no rooms or modules run in a circle, and
no class hides behind the name of another."""
import ast
import os
import re
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

TOP = Path(os.environ.get("BELLOWS_SRCDIR") or Path(__file__).resolve().parents[2])
ARROWS = TOP / "tests/static/arrows"
PARTS = ("common", "slurm", "checkpoint", "elastic", "modelstore", "paramserver", "pool", "image", "jobsubmit", "spank", "launcher")
SOURCES = (".cc", ".h", ".hpp", ".c", ".cpp", ".hh", ".cu", ".inc", ".inl", ".ipp")
# Of C++: what has no meaning here (comments, strings, lines of the preprocessor), and the words.
TOKEN = re.compile(r"""(?P<skipped>//[^\n]*|/\*.*?\*/|R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"
                       |"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'
                       |\#(?:\\\n|[^\n])*)|\w+|::|\S""", re.S | re.X)
CLASS = re.compile(r"(?:template < .* > )?(?:enum )?(?:class|struct|union|enum) (?:\[ \[ .*? \] \] )?"
                   r"(?P<name>\w+(?: :: \w+)*)(?: final)?(?: :(?!:) .*)?$")
points = 0
failed = False


def point(name, complaints):
    global points, failed
    points += 1
    failed = failed or bool(complaints)
    print(f"{'not ok' if complaints else 'ok'} {points} - {name}")
    for line in complaints[:40]:
        print("# " + line)


def read_arrows():
    rooms = {}
    for line in ARROWS.read_text().splitlines():
        if line and not line.startswith("#"):
            room, _, targets = line.partition(":")
            if room in rooms:
                sys.exit(f"{ARROWS}: {room} has two lines")
            rooms[room] = targets.split()
    return rooms


def circle_in(graph):
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        return [" -> ".join(reversed(error.args[1]))]
    return []


def sources():
    for part in PARTS:
        for path in sorted((TOP / part).rglob("*")):
            if path.suffix in SOURCES:
                yield path.relative_to(TOP)


def includes(path):
    """(number of the line, included file below the top) of each #include of ours."""
    for number, line in enumerate((TOP / path).read_text().splitlines(), 1):
        if not re.match(r"\s*(#|%:)\s*(include|import)", line):
            continue
        found = re.match(r'\s*#\s*include\s*["<]([^">]+)[">]', line)
        if not found:
            sys.exit(f"{path}:{number}: the check of the arrows cannot read this include")
        name = Path(found[1])
        beside = path.parent / name
        # Also what is no room, such as a folder of the tests.
        if (TOP / name).is_file():
            yield number, name
        elif (TOP / beside).is_file():
            yield number, Path(os.path.normpath(beside))


def check_includes(rooms):
    unknown, forbidden = set(), []
    for path in sources():
        room = str(path.parent)
        if room not in rooms:
            unknown.add(f"{room} is not in tests/static/arrows")
            continue
        for number, name in includes(path):
            target = str(name.parent)
            if target != room and target not in rooms[room]:
                forbidden.append(f"{path}:{number}: {room} may not include {target} ({name})")
    point("every folder of sources is a room", sorted(unknown))
    point("no room includes what it may not", forbidden)


def check_readmes(rooms):
    complaints = []
    for room, targets in rooms.items():
        path = TOP / room / "README.md"
        text = path.read_text() if path.exists() else ""
        said = re.search(r"^May include: (.*?)\.$", text, re.M | re.S)
        if not said:
            complaints.append(f"{room}/README.md does not say what the room may include")
        elif sorted(re.findall(r"`([^`]+)`", said[1])) != sorted(targets):
            complaints.append(f"{room}/README.md: tests/static/arrows says {', '.join(targets) or 'nothing'}")
        if len(text.splitlines()) > 100:
            complaints.append(f"{room}/README.md is longer than a page")
    point("each room's README says what it may include, on a page at most", complaints)


def check_design():
    missing = []
    for document in ("DESIGN.md", "README.md", "CONTRIBUTING.md"):
        for name in re.findall(r"`((?:[a-z_]+/)+[a-zA-Z0-9_.-]*)`", (TOP / document).read_text()):
            if not name.startswith("build/") and not (TOP / name).exists():
                missing.append(f"{document} names {name}, which does not exist")
    point("the files that the documents name exist", missing)


def module_graph():
    package = TOP / "python/bellows"
    graph = {}
    for path in package.glob("*.py"):
        found = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.removeprefix("bellows.") for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                module = node.module or ""
                if not node.level and module.split(".")[0] != "bellows":
                    continue
                module = module if node.level else module.removeprefix("bellows").lstrip(".")
                found |= {module} if module else {alias.name for alias in node.names}
        graph[path.stem] = {name for name in found if (package / f"{name}.py").exists()}
    return graph


def classes(path):
    """(namespace, classes around it and name, number of the line) of each class or enumeration that
    other files can name: those of functions and of anonymous namespaces are nobody else's."""
    text = (TOP / path).read_text()
    scopes, head = [], []
    for token in TOKEN.finditer(text):
        if token["skipped"]:
            continue
        word = token[0]
        if word == "{":
            said = " ".join(head)
            space, found = re.search(r"(?:^| )namespace ?([\w: ]*)$", said), CLASS.match(said)
            if space:
                names = space[1].replace(" ", "").split("::")
                scopes.append(("namespace" if all(names) else "other", names))
            elif said == "extern":
                scopes.append(("namespace", []))
            elif found:
                if all(kind != "other" for kind, _ in scopes):
                    spaces = [name for kind, names in scopes if kind == "namespace" for name in names]
                    around = [name for kind, names in scopes if kind == "class" for name in names]
                    name = "::".join([*around, found["name"].replace(" ", "")])
                    yield tuple(spaces), name, text.count("\n", 0, token.start()) + 1
                scopes.append(("class", [found["name"].replace(" ", "")]))
            else:
                scopes.append(("other", []))
        elif word == "}":
            scopes.pop()
        if word in "{};" or (word == ":" and head[-1:] in (["public"], ["protected"], ["private"])):
            head = []
        else:
            head.append(word)
    if scopes:
        raise ValueError(f"{path}: a brace is not closed")


def check_classes():
    """The linker takes the destructor of one class for the other's when both have one full name. In
    a namespace inside the other's, the name means either, depending on what is included."""
    places, complaints = {}, []
    for path in sources():
        for space, name, line in classes(path):
            places.setdefault((space, name), []).append(f"{path}:{line}")
    for (space, name), found in sorted(places.items()):
        around = [places.get((space[:length], name), []) for length in range(len(space))]
        for other in [*found[1:], *(each[0] for each in around if each)]:
            complaints.append(f"{name}: {found[0]} and {other}")
    point("no two classes share a name in one namespace or in one around it", complaints)


ROOMS = read_arrows()
point("every arrow leads to a room", [f"{room}: {target}" for room, targets in ROOMS.items()
                                      for target in targets if target not in ROOMS])
point("every room has sources", [room for room in ROOMS if not any((TOP / room).glob("*.[ch]*"))])
point("the arrows have no circle", circle_in(ROOMS))
check_includes(ROOMS)
check_readmes(ROOMS)
check_design()
point("the modules of the Python package have no circle", circle_in(module_graph()))
check_classes()
print(f"1..{points}")
sys.exit(failed)
