# SPDX-License-Identifier: Apache-2.0
"""What hostile.py asks of slurmctld: requests that must pass, and requests that try everything."""
import re

from oracle import GRES, OPTIONS, matches

PARTITIONS = ["main", "gpu1", "gpu2", "other", "closed"]
QOS = ["normal", "fast", "fast2", "slow"]
TYPES = ["a100", "v100"]
ODD = [0, 1, 2, 3, 4, 5, 8, 9, 16, 4096, 0x7fffffff, 0xfffffffd, 0xfffffffe, 0xffffffff]
ODD16 = [0, 1, 2, 3, 4, 8, 9, 0x8001, 0xfffd, 0xfffe, 0xffff]
SPELLINGS = [text.replace("gres:", GRES) for text in (
    "gres:gpu:{n}", "gres:gpu:{n}", "gres:gpu:{n}", "gres:gpu:{t}:{n}", "gres:gpu:{t}:{n}",
    "gres:gpu:{u}:{n}", "gpu:{n}", "gpu:{t}:{n}", "gpu={n}", "gres/gpu:{n}", "gres/gpu={n}",
    "gres:gpu={n}", "GRES:gpu:{n}", "gres:GPU:{n}", "gres:gpu", "gres:gpu:{t}",
    "gres:gpu:{t}:{n},gres:gpu:{u}:{m}", "gres:gpu:{n},gres:gpu:{m}", "gres:gpu:{t}:{n},gres:gpu:{m}",
    "gres:nic:{m},gres:gpu:{n}", "gres:gpu:{n},gres:nic:{m}", "gres:nic:{n}", "xgres:gpu:{n}",
    "x(gres:gpu:{t}:{n}", "gres:gpu:{n},xgres:gpu:{m}", "gres:gpu:{t}:{n},x(gres:gpu:{u}:{m}",
    "gres:gpu:{n}k", "gres:gpu:0{n}", "gres:gpu: {n}", " gres:gpu:{n}", "gres:gpu:{n} ",
    "gres:gpu:{n};gres:gpu:{m}", "gres:shard:{n}", "gres:mps:{n}", "gres:gpu:1g.10gb:{n}",
    "gres:gpu:a100_3g.20gb:{n}", "gres:gpu:{n}(S:0)", "gres:gpu:18446744073709551617",
    "gres:gpu:-{n}", "", "none", ",", "gres:gres:gpu:{n}", "gres:nic:gres:gpu:{n}", "gres:gpu::{n}",
    "gres:gpu:{t}:", "node:{n}", "billing:{n}", "gpu,gres:gpu:{n}", "gres:gpu:{t}:{n}:{m}",
    "gres:gpu:\x01{n}", "license:x:{n}", "gres:" + "gpu:1,gres:" * 200 + "gpu:{n}",
)] + ["gres:gpu:{n}", "gres:gpu:{n},gres/gpu:{m}"]
RANGES = ["1-8", "1-4", "1-2", "2-8:2", "1,2,4", "1,2,4,8", "3-6:3", "4-8:4", "1", "2", "8", "8-1", "0-4",
          "1-4096", "1-4097", "", " 1-4", "1-4 ", "1-", "-4", "1,1", "4,2", "1-4:0", "x", "1-8:3",
          "99999999999999999999", "1-8\n1-64"]
FRAMEWORKS = ["plain", "digits", "pytorch", "pytorch:2.1", "pytorch:2.0", "pytorch:1.13", "pytorch:1.8",
              "secret", "digits:1.0", "digits:9", "none", "", "plain:", ":1", "PLAIN", "plain ",
              "pytorch:2.*", "*", "a" * 300]
IMAGES = ["/images/a.sqsh", "/images/b"]
CONTAINERS = ["image:/images/a.sqsh", "image:/etc/a.sqsh", "image:/images/../etc/a.sqsh", "image:/", "verbose",
              "mount:/data:/data:ro", "image:/images/b,verbose", "image:", "nothing:1", "", "image"]
NAMES = ["framework", "gpus_range", "batch_range", "job_class", "container"]
FORMS = ["tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task"]
ZEROS = [f"{GRES}gpu:{count}" for count in ("0", "0", "0k", "a100:0", "v100:0M")]
COUNTS = ["0", "0", "0k", "0G", "1", "1", "2", "2", "3", "4", "4", "8", "1k", "1K", "2k", "1kb", "1KiB", "1kB",
          "1m", "1MiB", "1g", "1G", "1T"]


def subset(rng, sizes):
    """Some of the sizes, as a text of --gpus-range and as a list."""
    some = sorted(rng.sample(sorted(sizes), rng.randint(1, len(sizes))))
    return ",".join(map(str, some)), some


def spank(name, value, prefix=""):
    return "spank", f"{prefix}{OPTIONS}{name}={value}"


def recased(rng, text):
    return rng.choice([text, text, text.upper(), text.capitalize()])


def place(rng, policy):
    """A tenant that is open, and an account, user and partition that lead to it."""
    while True:
        tenant = rng.choice(policy.tenants)
        account = rng.choice(tenant.accounts)
        if tenant.children and rng.random() < 0.5:
            account = rng.choice([name for name, parent in policy.parents.items() if parent == account])
        user = rng.choice(list(policy.people))
        partition = rng.choice(PARTITIONS)
        allowed = tenant.sizing.get("partitions")
        if not tenant.suspended and policy.tenant(user, account, partition) is tenant and \
                (not allowed or matches(allowed, partition)):
            return tenant, account, user, partition


def spelled(rng, count):
    """A number of GPUs as Slurm reads it, sometimes with a suffix."""
    if count and count % 1024 == 0:
        return f"{count // 1024}{rng.choice(['k', 'K', 'kib', 'KiB'])}"
    if count and count % 1000 == 0:
        return f"{count // 1000}{rng.choice(['kb', 'KB'])}"
    return str(count)


def contained(rng):
    """What a job of sbatch --container-image carries: the option, and the text that stands for all."""
    image = rng.choice(IMAGES)
    prefix = rng.choice(["", "SPANK_"])
    return [spank("container_image", image, prefix), spank("container", f"image:{image}", prefix)]


def zeros(rng, fields, likely):
    """The fields with a number of 0 in some of the forms that they leave out."""
    said = dict(fields)
    return fields + [(form, rng.choice(ZEROS)) for form in FORMS
                     if form not in said and rng.random() < likely]


def kind_of(rng, limits):
    """A type that a tenant may name, with its colon."""
    return rng.choice(limits.types) + ":" if limits.types else rng.choice(["", "", "a100:"])


def divisors(count, most):
    return [part for part in range(1, most + 1) if count % part == 0 and count // part <= 8]


def own_size(rng, limits):
    """The GPUs of a job that has only a container: none, or a number in any form."""
    if rng.random() < 0.3:
        return zeros(rng, [], 0.5)
    count = rng.choice(sorted(limits.sizes))
    kind = kind_of(rng, limits)
    parts = divisors(count, min(limits.max_nodes or 4, 4))
    form = rng.choice(FORMS[:2] + FORMS[3:]) if parts and not limits.each else FORMS[0]
    if form == "tres_per_job":
        return zeros(rng, [(form, f"{GRES}gpu:{kind}{spelled(rng, count)}")], 0.4)
    part = rng.choice(parts)
    fields = [(form, f"{GRES}gpu:{kind}{count // part}")]
    if form == "tres_per_node":
        fields += [("min_nodes", part), ("max_nodes", part)]
    else:
        fields.append(("num_tasks", part))
    return zeros(rng, fields, 0.4)


def framed_size(rng, tenant):
    """Framework, range and size of a job that may choose."""
    fields = []
    framework = rng.choice([None, "plain", "digits", "pytorch", "pytorch:2.1"])
    name, _, version = (framework or "").partition(":")
    limits = tenant.limits_for(name, version or "2.1")
    some = sorted(limits.sizes)
    if framework:
        fields.append(spank("framework", framework))
    if not framework or rng.random() < 0.6:
        text, some = subset(rng, limits.sizes)
        fields.append(spank("gpus_range", text, rng.choice(["", "SPANK_"])))
    open_size = rng.random() < 0.4 and (not limits.types or len(limits.types) == 1)
    if not open_size:
        count = spelled(rng, rng.choice(some))
        fields.append(("tres_per_job", f"{GRES}gpu:{kind_of(rng, limits)}{count}"))
        fields = zeros(rng, fields, 0.1)
    return fields


def legal(rng, policy):
    """A request that the policy allows."""
    tenant, account, user, partition = place(rng, policy)
    fields = [("account", recased(rng, account)), ("partition", partition)]
    alone = rng.random() < 0.4
    if alone:
        fields += contained(rng) + own_size(rng, tenant.limits)
    else:
        fields += framed_size(rng, tenant) + (contained(rng) if rng.random() < 0.3 else [])
    if rng.random() < 0.5:
        fields.append(("time_limit", rng.randint(1, tenant.time_max or 600)))
    if rng.random() < 0.3:
        fields.append(("qos", rng.choice(["normal", "fast", "FAST2"])))
    none = alone and not any(key in FORMS and value not in ZEROS for key, value in fields)
    if tenant.batch_range and rng.random() < 0.1 and not none:
        fields.append(spank("batch_range", "32-256"))
    verb = rng.choice(["submit"] * 8 + ["alloc", "willrun"])
    return {"verb": verb, "user": user, "fields": fields}


def agreeing(rng):
    """Several forms that come to one number of GPUs, as Slurm wants them, and zeros."""
    nodes, each = rng.choice([1, 1, 2, 2, 4]), rng.choice([1, 1, 2, 4])
    tasks = rng.choice(divisors(nodes * each, nodes * each) or [1])
    kind = rng.choice(["", "", "a100:"])
    counts = {"tres_per_job": nodes * each, "tres_per_node": each, "tres_per_task": nodes * each // tasks}
    fields = [(form, f"{GRES}gpu:{kind}{count}") for form, count in counts.items() if rng.random() < 0.6]
    fields = zeros(rng, fields, 0.3)
    fields += [("min_nodes", nodes), ("max_nodes", nodes)] if rng.random() < 0.7 else []
    return fields + ([("num_tasks", tasks)] if rng.random() < 0.8 else [])


def clashing(rng):
    """Numbers, zeros and suffixes in any of the fields that have a say in the GPUs of a job."""
    fields = [(form, f"{GRES}gpu:{rng.choice(['', '', '', 'a100:', 'v100:'])}{rng.choice(COUNTS)}")
              for form in rng.sample(FORMS, rng.choice([1, 2, 2, 3, 4]))]
    others = {"num_tasks": [1, 2, 4, 8], "min_nodes": [1, 2, 4], "max_nodes": [0, 1, 2, 4],
              "ntasks_per_tres": [0, 0, 1, 2], "ntasks_per_node": [0, 1, 2], "cpus_per_task": [1, 2, 4],
              "min_cpus": [1, 4, 16], "pn_min_cpus": [1, 4, 16], "ntasks_per_socket": [1, 2],
              "cpus_per_tres": [f"{GRES}gpu:0", f"{GRES}gpu:1", f"{GRES}gpu:2", f"{GRES}gpu:1k"],
              "mem_per_tres": [f"{GRES}gpu:0", f"{GRES}gpu:64", f"{GRES}gpu:1k"]}
    return fields + [(key, rng.choice(values)) for key, values in others.items() if rng.random() < 0.2]


def mixture(rng):
    return agreeing(rng) if rng.random() < 0.6 else clashing(rng)


def mixed_job(rng, policy):
    """A job, most often with a container, whose GPUs are a mixture."""
    _, account, user, partition = place(rng, policy)
    own = contained(rng) if rng.random() < 0.7 else [spank("framework", "plain")]
    if rng.random() < 0.1:
        own.append(spank("gpus_range", rng.choice(RANGES)))
    return {"verb": rng.choice(["submit"] * 4 + ["alloc"]), "user": user,
            "fields": [("account", account), ("partition", partition), *own, *mixture(rng)]}


def classes(verb, fields):
    """What a request shows about the plugin, for the counts of each."""
    counts = [value for key, value in fields if key in FORMS and "gpu" in str(value)]
    digits = [re.search(r"(\d+)([a-zA-Z]*)$", value) for value in counts]
    some = [match for match in digits if match and int(match[1])]
    found = {"update" if verb == "update" else "submit"}
    if len(some) > 1:
        found.add("mixed")
    if any(match and not int(match[1]) for match in digits):
        found.add("zeros")
    if any(match and match[2] for match in digits):
        found.add("suffixes")
    if any(key == "spank" and OPTIONS + "container=" in str(value) for key, value in fields):
        found.add("container")
    return found


def tres(rng):
    return rng.choice(SPELLINGS).format(n=rng.choice([0, 1, 1, 2, 2, 3, 4, 4, 5, 6, 8, 9, 12, 16]),
                                        m=rng.choice([0, 1, 2, 4, 8]), t=rng.choice(TYPES),
                                        u=rng.choice([*TYPES, "A100", "h100"]))


def odd32(rng):
    return rng.choice(ODD) if rng.random() < 0.5 else rng.randint(1, 8)


def odd16(rng):
    return rng.choice(ODD16) if rng.random() < 0.5 else rng.randint(1, 8)


def names(rng, pool):
    picked = [rng.choice(pool) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
    return rng.choice([",", ",", ",", " ", ",,", ", "]).join(picked)


# Each writes one field; most of them are in both submissions and updates.
FIELDS = {
    "tres_per_job": tres, "tres_per_node": tres, "tres_per_socket": tres, "tres_per_task": tres,
    "num_tasks": odd32, "min_nodes": odd32, "max_nodes": odd32, "min_cpus": odd32, "max_cpus": odd32,
    "ntasks_per_tres": odd16, "ntasks_per_node": odd16, "cpus_per_task": odd16, "pn_min_cpus": odd16,
    "time_limit": lambda rng: rng.choice([0, 1, 60, 120, 121, 600, 0xfffffffe, 0xffffffff]),
    "time_min": odd32,
    "partition": lambda rng: names(rng, PARTITIONS + ["", "MAIN", "nowhere"]),
    "qos": lambda rng: rng.choice([*QOS, "FAST", "Slow", "", "1", "nothing", "fast,slow"]),
    "account": lambda rng: recased(rng, rng.choice(
        ["vision", "shared", "typed", "both", "whole", "ranged", "tree", "leaf", "twig", "gone",
         "speech", "outside", "nobody", "", " vision", "vision ", "root"])),
    "requeue": lambda rng: rng.choice([0, 0, 0, 1, 2, 0xfffe, 0xffff]),
    "shared": lambda rng: rng.choice([0, 0, 1, 2, 3, 4, 0xfe, 0xfffe, 0xffff]),
    "core_spec": odd16,
    "cpus_per_tres": tres, "mem_per_tres": tres,
    "pn_min_memory": lambda rng: rng.choice([0, 1, 100, 0x8000000000000001, 0xfffffffffffffffe]),
    "licenses": lambda rng: rng.choice(["", "tool", "tool:2", f"{GRES}gpu:8", "none:1"]),
    "features": lambda rng: rng.choice(["", "fast", "slow", "[fast|slow]", "fast&fast", "[fast*2&slow*2]"]),
    "req_nodes": lambda rng: rng.choice(["", "f1", "f[1-2]", "f[1-4],n1", "nowhere", "f1,f1", "f[1-"]),
    "exc_nodes": lambda rng: rng.choice(["", "n1", "f[1-7]", "f[1-8],n1"]),
    "tres_bind": lambda rng: rng.choice([f"{GRES}gpu:single:1", "gpu:closest", "x", ""]),
    "tres_freq": lambda rng: rng.choice(["gpu:low", "gpu:9999", "x", ""]),
    "contiguous": odd16, "overcommit": lambda rng: rng.choice([0, 1, 255]), "plane_size": odd16,
    "ntasks_per_socket": odd16, "sockets_per_node": odd16, "threads_per_core": odd16,
    "ntasks_per_core": odd16, "cores_per_socket": odd16, "boards_per_node": odd16,
    "bitflags": lambda rng: 1 << rng.randint(0, 63),
    "reservation": lambda rng: rng.choice(["", "none"]), "site_factor": odd32,
    "admin_comment": lambda _: "bellows/1 tenant=root gpus=1-4096",
    "comment": lambda rng: "x" * rng.choice([1, 2000]), "name": lambda rng: "n" * rng.choice([1, 5000]),
    "nice": odd32, "task_dist": odd32, "wckey": lambda rng: rng.choice(["", "x"]),
}
ONLY_SUBMIT = {
    "array_inx": lambda rng: rng.choice(["0-2", "1-3%1", "5", "", "0-99999999", "x", "3-1"]),
    "het_job_offset": lambda rng: rng.choice([0, 0, 1, 0xfffffffe, 0xffffffff]),
    "user_id": lambda rng: rng.choice([0, 20001, 20002, 20003, 0xfffffffe]),
    "group_id": lambda rng: rng.choice([0, 20101, 20102, 0xfffffffe]),
    "script": lambda rng: rng.choice(["", "#!/bin/sh\n", "true"]),
    "environment": lambda _: "BELLOWS_CONTRACT=bellows/1 tenant=root gpus=1-4096",
    "dependency": lambda rng: rng.choice(["singleton", "expand:1", "after:1", "x"]),
    "clusters": lambda rng: rng.choice(["", "bellows", "other"]), "reboot": odd16,
    "open_mode": lambda rng: rng.choice([0, 1, 2, 255]),
}
LIKELY = ["tres_per_job", "tres_per_node", "tres_per_task", "num_tasks", "min_nodes", "max_nodes",
          "time_limit", "partition", "qos", "account", "requeue", "ntasks_per_tres", "req_nodes"]


# Fields with which any user ends a bare slurmctld 22.05.8: it divides by the 0. As jobs and updates.
DEADLY = [
    [("ntasks_per_socket", 0), ("max_nodes", 5)],
    [("ntasks_per_socket", 0), ("num_tasks", 4)],
    [("ntasks_per_socket", 0), ("num_tasks", 4), ("tres_per_socket", f"{GRES}gpu:1")],
]


def forged(rng):
    """An entry of spank_job_env."""
    if rng.random() < 0.3:
        return "spank", rng.choice(["", "SPANK_", "SPANK_SPANK_"]) + \
            rng.choice(["BELLOWS_CONTRACT=bellows/1 tenant=root gpus=1-4096", "BELLOWS_TENANT=root",
                        OPTIONS + "framework", OPTIONS, "=", "", "BELLOWS_CONTRACT"])
    name = rng.choice(NAMES)
    pools = {"framework": FRAMEWORKS, "gpus_range": RANGES, "container": CONTAINERS}
    value = rng.choice(pools.get(name, ["8-64", "0", "x"]))
    return spank(name, value, rng.choice(["", "", "", "SPANK_"]))


def spoil(rng, fields, pool):
    """Changes one field, or adds it."""
    key = rng.choice(LIKELY) if rng.random() < 0.6 else rng.choice(list(pool))
    if not key:
        return fields
    return [field for field in fields if field[0] != key] + [(key, pool[key](rng))]


def hostile(rng, policy):
    if rng.random() < 0.4:
        return mixed_job(rng, policy)
    request = legal(rng, policy)
    fields = request["fields"]
    if rng.random() < 0.15:
        request["user"] = rng.choice(list(policy.people))
    if rng.random() < 0.15:
        fields = [field for field in fields if field[0] != "spank"]
    if rng.random() < 0.4:
        fields = [field for field in fields if field[0] != "tres_per_job"]
    for _ in range(rng.choice([0, 0, 0, 1, 1, 2])):
        fields.append(forged(rng))
    for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 3, 5])):
        fields = spoil(rng, fields, {**FIELDS, **ONLY_SUBMIT})
    request["fields"] = fields
    return request


def submission(rng, policy):
    wanted = rng.random() < 0.3
    request = legal(rng, policy) if wanted else hostile(rng, policy)
    keys = dict(request["fields"])
    # Whether a job would start now also hangs on nodes that are down.
    request["legal"] = wanted and request["verb"] != "willrun"
    request["named_qos"] = bool(keys.get("qos"))
    request["open"] = not any(key.startswith("tres_per") or key.startswith("ntasks_per")
                              for key in keys) and keys.get("requeue") != 0
    return request


def update(rng, policy, judge, request, shown):
    """A change to a job: one that must pass, or anything."""
    fields = [("job_id", shown.id)]
    tenant = policy.tenant(shown.user, shown.account, shown.partitions[0])
    if request["legal"] and request["pristine"] and request["options"] and rng.random() < 0.5:
        _, allowed = judge.allowed_sizes(tenant, request, shown)
        if shown.batch and len(allowed) > 1:
            fields.append(("tres_per_job", f"{GRES}gpu:{spelled(rng, rng.choice(sorted(allowed)))}"))
            return {"user": shown.user, "fields": fields, "legal": True}
    changes = mixture(rng) if rng.random() < 0.4 else []
    for _ in range(rng.choice([0, 0, 1] if changes else [1, 1, 1, 2, 2, 3])):
        changes = spoil(rng, changes, FIELDS_OF_UPDATES)
    user = shown.user if rng.random() < 0.95 else rng.choice(list(policy.people))
    return {"user": user, "fields": fields + changes, "legal": False}


FIELDS_OF_UPDATES = {**FIELDS, "end_time": lambda _: 4000000000, "deadline": lambda _: 4000000000,
                     "user_id": lambda rng: rng.choice([0, 20002])}
