# SPDX-License-Identifier: Apache-2.0
"""How long slurmctld waits in our job_submit(): the plugin alone.

One call right after the other finds the processor's caches warm; between two submissions slurmctld
does so much else that they are cold, which is measured besides.

The plugin looks at the job that is submitted and at no other, so the length of the queue does not
matter and there is none here.
"""
import json
import shutil
import statistics
import subprocess
import tempfile

import rows
import submit_policy

# Users as plugin_host.h has them: the hook asks for the name, which accounting or the system knows.
KNOWN, UNKNOWN = "20001", "20002"

ROUNDS = 24
CALLS = 2000
COLD_CALLS = 200
COLD_KIB = 8192


class Harness:
    """One plugin with its policy, in a process of its own."""

    def __init__(self, builddir, policy, account, *comment):
        self.process = subprocess.Popen(
            [f"{builddir}/tests/bench/plugin_harness",
             f"{builddir}/jobsubmit/.libs/job_submit_bellows.so", policy, account, *comment],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.rounds = []
        self.cold = []

    def __call__(self, calls, kib=0):
        """A round of calls; none is timed while another harness runs."""
        self.process.stdin.write(f"{calls} {kib}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(self.process.stderr.read().strip() or "plugin_harness ended")
        return json.loads(line)

    def all(self, key):
        return [r[key] for r in self.rounds]

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.process.stdout.close()
        self.process.stderr.close()


def measure(options, scratch):
    lua = submit_policy.write(scratch, "lua", lua=True)
    cases = {
        "plain": (submit_policy.write(scratch, "plain"), "account49", KNOWN),
        "lua": (lua, "account49", KNOWN, submit_policy.HOOKED),
        "unknown": (lua, "account49", UNKNOWN, submit_policy.HOOKED),
        "many": (submit_policy.write(scratch, "many", tenants=10000), "account9999", KNOWN),
    }
    harnesses = {}
    try:
        for name, arguments in cases.items():
            harnesses[name] = Harness(options.builddir, *arguments)
            harnesses[name](CALLS)
        for _ in range(options.count(ROUNDS)):
            for harness in harnesses.values():
                harness.rounds.append(harness(CALLS))
            for name in ("plain", "lua"):
                harnesses[name].cold.append(harnesses[name](COLD_CALLS, COLD_KIB)["p50"])
    finally:
        for harness in harnesses.values():
            harness.close()
    return harnesses


def ratios(over, under):
    return [a / b for a, b in zip(over, under)]


def slowest(name, harness):
    """By the clock on the wall, and of the processor alone: a busy machine lets others run between."""
    return [rows.row(f"submit.call_{name}max_us", harness.all("max"), "us", "lower", 1000, figure=max),
            rows.row(f"submit.call_{name}max_cpu_us", harness.all("max_cpu"), "us", "lower", 1000,
                     figure=max)]


def run(options):
    scratch = tempfile.mkdtemp(prefix="bellows-bench-")
    try:
        harnesses = measure(options, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    plain, lua = harnesses["plain"], harnesses["lua"]
    many, unknown = harnesses["many"].all("p50"), harnesses["unknown"].all("p50")
    without = ("without Lua", statistics.median(plain.all("p50")))
    few = ("50 tenants", without[1])
    return [
        rows.row("submit.call_p50_us", plain.all("p50"), "us", "lower", 10),
        rows.row("submit.call_p99_ratio", ratios(plain.all("p99"), plain.all("p50")), "x", "lower", 5),
        rows.row("submit.call_lua_p50_us", lua.all("p50"), "us", "lower", 30, without),
        rows.row("submit.call_lua_p99_ratio", ratios(lua.all("p99"), lua.all("p50")), "x", "lower", 5),
        rows.row("submit.call_cold_p50_us", plain.cold, "us", "lower"),
        rows.row("submit.call_lua_cold_p50_us", lua.cold, "us", "lower"),
        rows.row("submit.call_lua_unknown_user_us", unknown, "us", "lower", baseline=without),
        rows.row("submit.call_10000_tenants_us", many, "us", "lower", baseline=few),
        rows.row("submit.call_10000_tenants_ratio", ratios(many, plain.all("p50")), "x",
                 "lower", 1.5),
        *slowest("", plain),
        *slowest("lua_", lua),
    ]
