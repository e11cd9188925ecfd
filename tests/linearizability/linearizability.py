# SPDX-License-Identifier: Apache-2.0
"""Decides whether a history of concurrent operations on registers is linearizable.

The search is that of Wing and Gong (Testing and Verifying Concurrent Objects, 1993) with the
memory of Lowe (Testing for Linearizability, 2017): an order is built from its beginning, and what
was seen to lead nowhere, which is the set of operations done together with the state, is not tried
again. Registers are independent, so each key is searched for itself (Herlihy and Wing, 1990).
"""

import json
from dataclasses import dataclass, replace
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

UNKNOWN = type("Unknown", (), {"__repr__": lambda self: "UNKNOWN"})()
"""The result of an operation whose answer nobody has seen."""
ANY = type("Any", (), {"__repr__": lambda self: "ANY"})()
"""The state of a register of which nothing is known."""
_IMPOSSIBLE = object()
_WINDOW = 100  # operations among which a contradiction that needs no others is sought
_EFFORT = 3000  # steps of the search that a try with fewer operations may take
_ARGUMENTS = {"read": 0, "write": 1, "cas": 2, "add": 1}


class BadHistory(Exception):
    """A line of a history cannot be read; the text says which and why."""


@dataclass(frozen=True)
class Operation:
    """One operation on one key. An optional one may have had no effect at all."""

    process: Any
    key: str
    kind: str  # read, write, cas or add
    args: Tuple[Any, ...]
    call: float
    ret: float  # infinite: it may still take effect at the end
    result: Any = UNKNOWN
    optional: bool = False


@dataclass(frozen=True)
class Violation:
    """What no order explains: the operations of one key, and the state that they begin with."""

    key: str
    initial: Any  # ANY: no state explains them
    operations: Sequence[Operation]  # the last to return is the one that does not fit


def step(operation: Operation, state: Any) -> Any:
    """The state after the operation, or _IMPOSSIBLE if its result can't come from this state."""
    kind, args, result = operation.kind, operation.args, operation.result
    if kind == "read":
        fits = result is UNKNOWN or state is ANY or state == result
        return (state if result is UNKNOWN else result) if fits else _IMPOSSIBLE
    if kind == "write":
        return args[0]
    if kind == "cas":
        if state is ANY:
            return args[1] if result is True else ANY
        equal = state == args[0]
        if result is not UNKNOWN and result != equal:
            return _IMPOSSIBLE
        return args[1] if equal else state
    if state is ANY:
        return ANY if result is UNKNOWN else result
    if state is not None and not isinstance(state, int):
        return _IMPOSSIBLE  # no number: it can't be added to
    after = (state or 0) + args[0]
    return after if result is UNKNOWN or result == after else _IMPOSSIBLE


def _leading_to(operation: Operation, after: Any) -> Tuple[Any, ...]:
    """The states that the operation, with its result if that is known, changes to `after`."""
    kind, args, result = operation.kind, operation.args, operation.result
    if kind == "write" and args[0] == after:
        return (ANY,)
    if kind == "cas" and args[1] == after and result is not False:
        return (args[0],)
    if kind == "add" and isinstance(after, int) and result in (UNKNOWN, after):
        return (0, None) if after == args[0] else (after - args[0],)
    return ()


def _needed(operation: Operation) -> Tuple[Any, ...]:
    """The states from which the operation has the result that it had."""
    if operation.kind == "read":
        return (operation.result,)
    if operation.kind == "cas":
        return (operation.args[0],)
    return _leading_to(operation, operation.result)


def _is_new(known: Dict[Any, List[int]], place: Any, used: int) -> bool:
    """Remembers that `place` was reached with these optional operations. A way to it that leaves
    more of them for later can do all that this one can."""
    others = known.setdefault(place, [])
    if any(fewer & used == fewer for fewer in others):
        return False
    others[:] = [more for more in others if more & used != used]
    others.append(used)
    return True


class _Search:
    """One key. A position is (base, bits, used, state): of the definite operations, in the order of
    their calls, all below `base` are done and those at base + i for each bit i of `bits`; of the
    optional ones those in `used`."""

    def __init__(self, operations: Iterable[Operation]):
        in_order = sorted(operations, key=lambda o: (o.call, o.ret))
        self.effort = float("inf")
        self.definite = [o for o in in_order if not o.optional]
        self.optional = [o for o in in_order if o.optional]
        # The one of the same effect that was called before it, which may as well be used first.
        self.before: List[Optional[int]] = []
        last: Dict[Any, int] = {}
        for index, o in enumerate(self.optional):
            effect = (o.kind, o.args, o.result)
            self.before.append(last.get(effect))
            last[effect] = index

    def limit(self, base: int, bits: int) -> Tuple[float, int]:
        """The first return that is still to come, and after which definite operation it cuts."""
        limit, index = float("inf"), base
        while index < len(self.definite) and self.definite[index].call <= limit:
            if not bits >> (index - base) & 1:
                limit = min(limit, self.definite[index].ret)
            index += 1
        return limit, index

    def successors(self, position: Tuple[int, int, int, Any], limit: float, end: int) -> Iterator:
        base, bits, used, state = position
        for index in range(base, end):
            if bits >> (index - base) & 1:
                continue
            operation = self.definite[index]
            now, first = bits | 1 << (index - base), base
            while now & 1:
                now, first = now >> 1, first + 1
            after = step(operation, state)
            if after is not _IMPOSSIBLE:
                yield first, now, used, after
                continue
            # Only here can an optional operation be of use: before any other it may as well wait.
            for with_more, reached in self.explained(operation, state, used, limit):
                yield first, now, with_more, step(operation, reached)

    def explained(self, operation: Operation, state: Any, used: int, limit: float) -> Iterator:
        """The optional operations after which this one, which is not possible now, is; and the
        state to which they lead."""
        if operation.kind == "cas" and not operation.result:
            for index in self.unused(used, limit):
                after = step(self.optional[index], state)
                if after is not _IMPOSSIBLE and after != state:
                    yield used | 1 << index, after
            return
        for needed in _needed(operation):
            for with_more in self.ways(state, needed, used, limit):
                yield with_more, needed

    def ways(self, state: Any, needed: Any, used: int, limit: float) -> Iterator[int]:
        """The optional operations that lead from one state to another, found from the last on."""
        known: Dict[Any, List[int]] = {}
        todo = [(needed, used)]
        for before, with_more in todo:
            self.effort -= 1
            if self.effort < 0:
                return
            if before is ANY or before == state:
                yield with_more
                continue
            for index in self.unused(with_more, limit):
                for earlier in _leading_to(self.optional[index], before):
                    if _is_new(known, earlier, with_more | 1 << index):
                        todo.append((earlier, with_more | 1 << index))

    def unused(self, used: int, limit: float) -> Iterator[int]:
        for index, operation in enumerate(self.optional):
            if operation.call > limit:
                return
            twin = self.before[index]
            if not used >> index & 1 and (twin is None or used >> twin & 1):
                yield index

    def run(self, initial: Any, effort: float = float("inf")) -> Optional[float]:
        """None if there is an order, or it takes more effort than that to see that there is none;
        else the earliest return by which there is none."""
        self.effort = effort + len(self.definite)
        if not self.definite:
            return None
        seen: Dict[Any, List[int]] = {}
        limit, end = self.limit(0, 0)
        furthest = limit
        stack = [self.successors((0, 0, 0, initial), limit, end)]
        while stack:
            position = next(stack[-1], None)
            if self.effort < 0:
                return None
            self.effort -= 1
            if position is None:
                stack.pop()
                continue
            base, bits, used, state = position
            if not _is_new(seen, (base, bits, state), used):
                continue
            if base == len(self.definite):
                return None
            limit, end = self.limit(base, bits)
            furthest = max(furthest, limit)
            stack.append(self.successors(position, limit, end))
        return furthest


def _until(operations: Iterable[Operation], time: float) -> List[Operation]:
    """The history as it was known at that time."""
    return [
        o if o.ret <= time else replace(o, ret=float("inf"), optional=True)
        for o in operations
        if o.call <= time
    ]


def _since(operations: Iterable[Operation], time: float) -> List[Operation]:
    """What is left without everything before that time, so that nothing is claimed of it: what
    overlaps it may have taken effect before."""
    return [o if o.call >= time else replace(o, optional=True) for o in operations if o.ret >= time]


def _smallest(key: str, operations: List[Operation], time: float, initial: Any) -> Violation:
    """Leaves out what the contradiction does not need."""
    kept = _until(operations, time)
    calls = sorted(o.call for o in kept if not o.optional)
    for last in range(1, min(len(calls), _WINDOW) + 1):
        window = _since(kept, calls[-last])
        if _Search(window).run(ANY, _EFFORT) is not None:
            kept, initial = window, ANY
            break
    # An operation that may have had no effect, or a read, does not oblige what is left. Others that
    # may have taken effect stay: they might have explained it.
    unneeded = [o for o in kept if o.kind == "read" or o.result is False]
    for operation in unneeded if len(unneeded) <= _WINDOW else []:
        fewer = [o for o in kept if o is not operation]
        if operation.optional or _Search(fewer).run(initial, _EFFORT) is not None:
            kept = fewer
    return Violation(key, initial, sorted(kept, key=lambda o: (o.call, o.ret)))


def check(operations: Iterable[Operation], initial: Any = None) -> Optional[Violation]:
    """None if the history is linearizable, with each key `initial` at first (None: absent)."""
    keys: Dict[str, List[Operation]] = {}
    for operation in operations:
        keys.setdefault(operation.key, []).append(operation)
    for key, on_key in keys.items():
        time = _Search(on_key).run(initial)
        if time is not None:
            return _smallest(key, on_key, time, initial)
    return None


def _plain(value: Any) -> Any:
    """A value that can be compared and be a member of a set; in Python True equals 1."""
    if isinstance(value, (list, dict, float, bool)):
        return ("json", json.dumps(value, sort_keys=True))
    return value


def parse(line: str) -> Optional[Operation]:
    """The operation of a line; None if it certainly was not done. Raises BadHistory."""
    try:
        entry = json.loads(line)
        kind, args, outcome = entry["op"], entry.get("args", []), entry["outcome"]
        if kind not in _ARGUMENTS or len(args) != _ARGUMENTS[kind]:
            raise BadHistory(f'there is no operation "{kind}" with {len(args)} arguments')
        if outcome not in ("ok", "failed", "unknown"):
            raise BadHistory(f'"{outcome}" is no outcome: ok, failed or unknown')
        if outcome == "ok" and entry["return"] < entry["call"]:
            raise BadHistory("it returns before it is called")
        result = UNKNOWN
        if outcome == "ok" and kind != "write":
            result = bool(entry["result"]) if kind == "cas" else _plain(entry["result"])
        operation = Operation(
            entry["process"],
            str(entry["key"]),
            kind,
            tuple(args) if kind == "add" else tuple(map(_plain, args)),
            entry["call"],
            entry["return"] if outcome == "ok" else float("inf"),
            result,
            outcome == "unknown",
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadHistory(f"{type(error).__name__}: {error}") from error
    return None if outcome == "failed" else operation


def read(lines: Iterable[str]) -> List[Operation]:
    """The operations of a history of JSON lines. Raises BadHistory."""
    found = []
    for number, line in enumerate(lines, 1):
        try:
            operation = parse(line) if line.strip() else None
        except BadHistory as error:
            raise BadHistory(f"line {number}: {error}") from error
        if operation is not None:
            found.append(operation)
    return found


def describe(violation: Violation) -> str:
    """A line for each operation, in the order of the calls."""
    begin = "any value" if violation.initial is ANY else json.dumps(violation.initial)
    lines = [f"key {violation.key}: no order explains these operations, begun with {begin}"]
    if len(violation.operations) > _WINDOW:
        lines.append(f"  ... {len(violation.operations) - _WINDOW} operations before these")
    for o in violation.operations[-_WINDOW:]:
        until = "..." if o.ret == float("inf") else o.ret
        got = "" if o.result is UNKNOWN else f" -> {json.dumps(o.result)}"
        maybe = "  (may have had no effect, or before)" if o.optional else ""
        args = ", ".join(json.dumps(a) for a in o.args)
        lines.append(f"  [{o.call} {until}] process {o.process}: {o.kind}({args}){got}{maybe}")
    return "\n".join(lines)
