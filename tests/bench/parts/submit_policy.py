# SPDX-License-Identifier: Apache-2.0
"""Policies of any size for the benchmarks of submission, and a site's rules in Lua."""

HOOKED = "hooked"  # what the hooks leave in a job's comment, as a proof that they ran

HEAD = """version: 1
checkpoint_dir: /shared/checkpoints/%u/%j
frameworks:
"""

FRAMEWORK = """  framework{0}:
    versions:
      "2.1": {{image: /images/framework{0}-2.1.sqsh}}
      "1.13": {{state: deprecated, hint: "use framework{0}:2.1"}}
      "1.8": {{state: removed, hint: "use framework{0}:2.1"}}
    default: "2.1"
    env: {{NCCL_DEBUG: WARN, OMP_NUM_THREADS: "4"}}
    launch: [torch, nccl]
"""

DEFAULTS = """defaults:
  gpus: {min: 1, max: 16, start: 2, max_nodes: 4}
  sizing:
    per_gpu: {cpus: 4, memory: 1G, snapshot: 512M}
    time: {default: 4:00:00, max: 2-00:00:00}
    placement: pack
    partitions: [main, gpu*]
tenants:
"""

TENANT = "  tenant{0}: {{accounts: [account{0}], frameworks: [\"framework{1}\", \"framework{2}*\"]}}\n"

# Slurm's plugin for Lua gets these rules and all that bellows.yaml says besides, see job_submit.lua.
RULES = """local most = { alice = 32, bob = 16 }

function submit(job, tenant)
  if job.gpus_max and job.gpus_max > 8 and now.wday >= 2 and now.wday <= 6 and now.hour >= 8 and now.hour < 18 then
    return ("on workdays from 8:00 to 18:00 a job may have at most 8 GPUs, and this one asks for %d; "
      .. "ask for fewer or submit it later"):format(job.gpus_max)
  end
  local cap = most[job.user_name or ""] or 8
  if job.gpus_max and job.gpus_max > cap then
    return ("%s may use at most %d GPUs in a job"):format(job.user_name or "you", cap)
  end
  job.comment = "hooked"
end
"""


def policy(tenants=50, frameworks=40, script=None):
    """bellows.yaml as text. All tenants may use framework7, the sample job's."""
    text = HEAD + "".join(FRAMEWORK.format(i) for i in range(frameworks)) + DEFAULTS
    text += "".join(TENANT.format(i, 7, i % frameworks) for i in range(tenants))
    return text + (f"lua: {{script: {script}}}\n" if script else "")


def write(directory, name, **options):
    """Writes a policy and, with lua=True, the rules beside it. Returns the policy's path."""
    script = "rules.lua" if options.pop("lua", False) else None
    if script:
        with open(f"{directory}/{script}", "w", encoding="utf-8") as stream:
            stream.write(RULES)
    path = f"{directory}/{name}.yaml"
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(policy(script=script, **options))
    return path
