# SPDX-License-Identifier: Apache-2.0
"""Rows of build/bench.json: figures with their goals, and how sure we are of them."""
import json
import math
import os
import random
import statistics


def percentile(ordered, part):
    """By nearest rank: the smallest of them that at least this part of all does not exceed."""
    return ordered[math.ceil(part * len(ordered)) - 1]


def interval(samples, figure=statistics.median, rounds=2000):
    """Bootstrap 95 % interval of a figure of the samples. The same samples give the same interval."""
    rng = random.Random(1)
    figures = sorted(figure(rng.choices(samples, k=len(samples))) for _ in range(rounds))
    return figures[int(0.025 * rounds)], figures[int(0.975 * rounds) - 1]


def met(low, high, goal, better):
    """True or False when the whole interval is on one side of the goal, None when it is on both."""
    if better == "lower":
        low, high, goal = -high, -low, -goal
    return True if low >= goal else False if high < goal else None


def row(name, samples, unit, better, goal=None, baseline=None, figure=statistics.median, note=None):
    """A figure of the samples, mostly their median, as a row. `baseline` is a (name, value) pair; `note` says
    what is measured where the name does not."""
    low, high = interval(samples, figure)
    result = {"name": name, "value": rounded(figure(samples)), "unit": unit,
              "better": better, "low": rounded(low), "high": rounded(high), "samples": len(samples)}
    if goal is not None:
        result["goal"] = goal
        result["met"] = met(low, high, goal, better)
    if baseline is not None:
        result["baseline"] = {"name": baseline[0], "value": rounded(baseline[1])}
    if note is not None:
        result["note"] = note
    return result


def left_out(name, why):
    """Instead of a row: it can't be measured here."""
    return {"name": name, "left_out": str(why)}


def rounded(value):
    return float(f"{value:.4g}")


def read(path):
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except FileNotFoundError:
        return []


def store(path, part, rows):
    """Replaces one part's rows and keeps the others. All or nothing."""
    kept = [r for r in read(path) if r.get("part", r["name"].split(".")[0]) != part]
    rows = [{**r, "part": part} for r in rows]
    with open(path + ".new", "w", encoding="utf-8") as stream:
        json.dump(sorted(kept + rows, key=lambda r: r["name"]), stream, indent=1)
        stream.write("\n")
    os.replace(path + ".new", path)


def text(r):
    """A row for people."""
    width = 44
    if "left_out" in r:
        return f"{r['name']:<{width}}   left out: {r['left_out']}"
    line = f"{r['name']:<{width}} {r['value']:>10g} {r['unit']:<6} {r['low']:g} to {r['high']:g}"
    if "goal" in r:
        verdict = {True: "met", False: "missed", None: "too noisy to tell"}[r["met"]]
        line += f"   goal {r['goal']:g}: {verdict}"
    if "baseline" in r:
        line += f"   ({r['baseline']['name']}: {r['baseline']['value']:g})"
    if "note" in r:
        line += f"\n  {r['note']}"
    return line
