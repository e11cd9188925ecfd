# SPDX-License-Identifier: Apache-2.0
"""How fast the parameter server's rules compute new weights, against moving as many bytes, in one thread; and how
long a learner waits for an update, beside others that do as much; and a training, beside another way and plain SGD."""
import json
import statistics
import subprocess

import checkpoint
import paramserver_peers
import paramserver_training
import rows

KIB = 64 << 10
REPEATS = 24
GOAL = 1.25
# Bytes of arrays that are read and written for each byte of the weights.
MOVED = {"sgd": 3, "momentum": 5, "adagrad": 5, "adam": 7, "rmsprop": 5}
# Where stores past the cache begin to pay: this much is written.
STORES = {"sgd": (2 << 10, 16 << 10), "adam": (1 << 10, 8 << 10)}


def measured(options, what, rule, gradient, kib, repeats):
    done = subprocess.run([f"{options.builddir}/tests/bench/rule_bench", what, rule, gradient, str(kib), str(repeats)],
                          check=True, capture_output=True, text=True, timeout=600)
    return json.loads(done.stdout)


def limit_row(options, rule, gradient):
    took = measured(options, "limit", rule, gradient, KIB, options.count(REPEATS))
    moved = statistics.median(took["move"])
    name = f"paramserver.vs_limit.{rule}" + ("" if gradient == "f32" else f".{gradient}")
    parts = MOVED[rule] - (0 if gradient == "f32" else 0.5)
    return rows.row(name, [rule_s / move_s for rule_s, move_s in zip(took["rule"], took["move"])], "x", "lower", GOAL,
                    ("a move of as many bytes, s", moved),
                    note=f"{KIB >> 10} MiB of weights, {parts:g} bytes moved for each of theirs, "
                         f"{parts * KIB * 1024 / moved / 1e9:.1f} GB/s")


def stores_row(options, rule, kib):
    took = measured(options, "stores", rule, "f32", kib, options.count(64))
    return rows.row(f"paramserver.past_cache.{rule}.{kib >> 10}MB",
                    [past / through for past, through in zip(took["past"], took["through"])], "x", "lower",
                    note="a rule and a reading of the new weights, with stores past the cache against ordinary ones: "
                         "rule.h's kPastCache should lie between what is above 1 and what is below"
                    if (rule, kib) == ("sgd", STORES["sgd"][0]) else None)


def gpu_rows(options):
    """Copies from and to a GPU, which ps_probe also compares byte by byte."""
    with paramserver_peers.server(options) as environment:
        done = subprocess.run([f"{options.builddir}/tests/gpu/ps_probe", environment["BELLOWS_PS_SOCKET"], "256",
                               str(options.count(16))], check=False, capture_output=True, text=True, timeout=600)
    if done.returncode == checkpoint.SKIPPED:
        return [rows.left_out("paramserver.gpu", done.stderr.strip())]
    if done.returncode != 0:
        raise RuntimeError(f"ps_probe: {done.stderr}")
    pairs = [json.loads(line) for line in done.stdout.splitlines()]
    note = done.stderr.strip() or "256 MiB of float32 in 8 tensors"
    return [checkpoint.against(pairs, kind, f"paramserver.{kind}_vs_memcpy", "lower", None,
                               "a copy by the driver to or from its own pinned memory, s", note=note)
            for kind in ("gpu_gradient", "gpu_weights")]


def run(options):
    yield from (limit_row(options, rule, "f32") for rule in MOVED)
    yield from (limit_row(options, rule, gradient) for rule in ("sgd", "adam") for gradient in ("bf16", "f16"))
    yield from (stores_row(options, rule, kib) for rule, sizes in STORES.items() for kib in sizes)
    yield from gpu_rows(options)
    yield from paramserver_peers.run(options)
    yield from paramserver_training.run(options)
