# SPDX-License-Identifier: Apache-2.0
"""What bellows.yaml(5) and job_submit_bellows(8) promise, written a second time.

It reads the policy with a reader of its own, and looks at a job only as `scontrol show job` shows it.
The contract, which AdminComment shows, has no say: it is held against the GPUs like everything else.
"""
import fnmatch
import re

import yaml

from slurm_version import slurm_version

MOST_GPUS = 4096
SHOWN = ("JobId", "UserId", "Account", "QOS", "JobState", "Requeue", "BatchFlag", "TimeLimit",
         "Partition", "NumNodes", "NumTasks", "TRES", "CoreSpec", "OverSubscribe", "Exclusive")
OPTIONS = "_SLURM_SPANK_OPTION_bellows_"


# What comes before a GRES in Slurm's lists, and what Slurm looks for in them.
GRES, GRES_MARK = ("gres/", "gres") if slurm_version() >= (23, 11) else ("gres:", "gres:")


class Loader(yaml.SafeLoader):
    """YAML 1.2's numbers: in YAML 1.1 the time 2:00:00 is one, 7200."""


Loader.yaml_implicit_resolvers = {
    start: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":int", ":float"))]
    for start, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()}
Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"\d+$"), list("0123456789"))


def minutes(text):
    """Slurm's spellings of a duration, for whole minutes."""
    if isinstance(text, int):
        return text
    days, dash, clock = text.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    if dash:
        hours, mins = (parts + [0, 0])[:2]
        return int(days) * 1440 + hours * 60 + mins
    if len(parts) == 3:
        return parts[0] * 60 + parts[1]
    return parts[0]


def shown_minutes(text):
    """TimeLimit of scontrol; None: no limit, or the partition's."""
    if not re.fullmatch(r"(\d+-)?\d+:\d+:\d+", text):
        return None
    days, _, clock = text.rpartition("-")
    hours, mins, secs = (int(part) for part in clock.split(":"))
    return int(days or 0) * 1440 + hours * 60 + mins + (secs > 0)


def parse_range(text):
    """A --gpus-range as the set of its sizes; None: it is not one."""
    if not isinstance(text, str):
        return None
    if match := re.fullmatch(r"(\d+)-(\d+)(?::(\d+))?", text):
        low, high, step = int(match[1]), int(match[2]), int(match[3] or 1)
        sizes = range(low, high + 1, step) if step else ()
    elif re.fullmatch(r"\d+(,\d+)*", text):
        sizes = [int(piece) for piece in text.split(",")]
    else:
        return None
    if not sizes or min(sizes) < 1 or max(sizes) > MOST_GPUS:
        return None
    return frozenset(sizes)


class Limits:
    """The gpus: of a tenant or of its framework_limits."""

    def __init__(self, keys):
        low, high = keys.get("min", 1), keys.get("max", MOST_GPUS)
        sizes = keys.get("sizes")
        self.each = keys.get("gpus_per_node", 0) if sizes == "whole_nodes" else 0
        if sizes is None:
            every = range(low, high + 1, keys.get("step", 1))
        elif sizes == "powers_of_two":
            every = [1 << bit for bit in range(13)]
        elif sizes == "whole_nodes":
            every = range(self.each, high + 1, self.each)
        else:
            every = sizes
        self.sizes = frozenset(size for size in every if low <= size <= high)
        self.types = keys.get("types") or []
        self.max_nodes = keys.get("max_nodes")
        given = parse_range(str(keys["range"])) if "range" in keys else None
        self.range = given & self.sizes if given else None


def merged(below, above):
    result = dict(below or {})
    for key, value in (above or {}).items():
        for one, other in (("step", "sizes"), ("sizes", "step")):
            if key == one:
                result.pop(other, None)
        result[key] = value
    return result


class Tenant:
    """One tenant with all that it inherits."""

    def __init__(self, name, own, defaults):
        own = own or {}
        keys = {**defaults, **own}
        self.name = name
        self.accounts = [str(account).lower() for account in keys.get("accounts", [name])]
        self.children = keys.get("children", False)
        self.users = keys.get("users") or []
        self.groups = keys.get("groups") or []
        self.partitions = keys.get("partitions") or []
        self.suspended = keys.get("suspended") is not None
        self.frameworks = keys.get("frameworks")
        self.batch_range = keys.get("batch_range", True)
        self.images = keys.get("images") or []
        gpus = merged(defaults.get("gpus"), own.get("gpus"))
        self.limits = Limits(gpus)
        self.special = [(pattern, Limits(merged(gpus, value.get("gpus"))))
                        for pattern, value in (keys.get("framework_limits") or {}).items()]
        self.sizing = merged(defaults.get("sizing"), own.get("sizing"))
        self.time_max = minutes(self.sizing.get("time", {}).get("max", 0))

    def takes(self, person, partition):
        """Whether its narrowing to users, groups and partitions lets this job in."""
        if self.partitions and not matches(self.partitions, partition):
            return False
        if not self.users and not self.groups:
            return True
        return person["user"] in self.users or bool(set(self.groups) & set(person["groups"]))

    def may_use(self, name, version):
        if self.frameworks is None:
            return True
        return any(fits(pattern, name, version) for pattern in self.frameworks)

    def limits_for(self, name, version):
        for pattern, limits in self.special:
            if name and fits(pattern, name, version):
                return limits
        return self.limits


def fits(pattern, name, version):
    return (fnmatch.fnmatchcase(name, pattern) or
            bool(version) and fnmatch.fnmatchcase(f"{name}:{version}", pattern))


def matches(patterns, text):
    return any(fnmatch.fnmatchcase(text, pattern) for pattern in patterns)


class Policy:
    """bellows.yaml, and what Slurm knows of users and accounts."""

    def __init__(self, path, parents, people, default_partition):
        with open(path, encoding="utf-8") as stream:
            self.tree = yaml.load(stream, Loader)
        self.tenants = [Tenant(name, own, self.tree.get("defaults") or {})
                        for name, own in self.tree["tenants"].items()]
        self.fallback = self.tree.get("default_tenant") or None
        self.parents = parents
        self.people = people
        self.default_partition = default_partition

    def tenant(self, user, account, partition):
        """The tenant of a job, by name; None: nobody takes it."""
        person = self.people[user]
        chain, seen = [account], account
        while seen in self.parents:
            seen = self.parents[seen]
            chain.append(seen)
        for level, name in enumerate(chain):
            for tenant in self.tenants:
                if name in tenant.accounts and (level == 0 or tenant.children) and \
                        tenant.takes(person, partition):
                    return tenant
        for tenant in self.tenants:
            if tenant.name == self.fallback and tenant.takes(person, partition):
                return tenant
        return None

    def versions(self, name):
        """Version -> state; a framework without versions has the version None."""
        listed = (self.tree["frameworks"].get(name) or {}).get("versions") or {}
        if isinstance(listed, list):
            return dict.fromkeys(listed, "supported")
        return {version: (keys or {}).get("state", "supported") for version, keys in listed.items()}

    def plain_refused(self, partition):
        rule = self.tree.get("plain_jobs", "pass")
        if isinstance(rule, str):
            return rule == "refuse"
        return rule.get("partitions", {}).get(partition, rule.get("default", "pass")) == "refuse"

    def framework(self, tenant, text):
        """(allowed?, name, version) of --framework=text."""
        if text is None:
            return True, None, None
        name, _, version = text.partition(":")
        if name not in (self.tree["frameworks"] or {}):
            return False, name, version
        states = self.versions(name)
        if version:
            open_to = states.get(version, "removed") != "removed" and tenant.may_use(name, version)
            return open_to, name, version
        if not states:
            return tenant.may_use(name, None), name, None
        first = (self.tree["frameworks"][name] or {}).get("default")
        order = ([first] if first else []) + list(states)
        for version in order:
            if states.get(version) != "removed" and tenant.may_use(name, version):
                return True, name, version
        return False, name, None


def asked(fields):
    """The options of Bellows in a request's spank_job_env: name -> set of its values."""
    options = {}
    for key, value in fields:
        if key != "spank":
            continue
        bare = value.removeprefix("SPANK_")
        if bare.startswith(OPTIONS) and "=" in bare:
            name, _, text = bare.removeprefix(OPTIONS).partition("=")
            options.setdefault(name, set()).add(text)
    return {name: options[name] for name in ("framework", "gpus_range", "batch_range", "job_class",
                                              "container")
            if name in options}


def multiplier(suffix):
    """Of Slurm's suffixes for a number; None: it is none of them."""
    match = re.fullmatch(r"([kmgtp])(ib|b|)", suffix.lower())
    if not match:
        return None if suffix else 1
    return (1000 if match[2] == "b" else 1024) ** ("kmgtp".index(match[1]) + 1)


def gres_items(text):
    """(name, type, count) as Slurm reads a field: it looks for GRES_MARK wherever it stands."""
    found = {}
    text = text or ""
    while (at := text.find(GRES_MARK)) >= 0:
        text = text[at + len(GRES_MARK):].removeprefix("/")
        item, _, text = text.partition(",")
        name, _, rest = item.partition(":")
        kind, colon, count = rest.rpartition(":")
        number = re.fullmatch(r"(\d+)(\w*)", count)
        factor = multiplier(number[2]) if number else None
        if factor is None:
            kind = rest if not colon else kind
        size = 1 if factor is None else int(number[1]) * factor
        if size:
            found[name, kind] = size  # a second one of the kind replaces the first
    return found


def span(text):
    """NumNodes of scontrol: (least, most); most is None without a limit."""
    low, dash, high = text.partition("-")
    return int(low), int(high) if dash else None


class Shown:
    """A job as `scontrol --oneliner show job` shows it."""

    def __init__(self, line):
        self.line = line
        self.keys = dict(re.findall(r"(?:^| )([A-Z][\w/:]*)=(\S*)", line))
        self.id = int(self.keys["JobId"])
        self.user = self.keys["UserId"].partition("(")[0]
        self.account = self.keys.get("Account", "")
        self.partitions = [name for name in self.keys["Partition"].split(",") if name]
        self.started = self.keys["JobState"] in ("RUNNING", "CONFIGURING")
        self.nodes = span(self.keys["NumNodes"])
        if self.started:
            self.nodes = (self.nodes[0], self.nodes[0])
        self.batch = self.keys["BatchFlag"] == "1"
        # From 26.05 OverSubscribe=NO means less.
        exclusive = self.keys.get("Exclusive")
        self.whole_nodes = exclusive == "NODE" if exclusive else self.keys["OverSubscribe"] == "NO"
        tasks = self.keys["NumTasks"]
        self.tasks = int(tasks) if tasks.isdigit() else 1
        # From 23.02 what a job asks for and what it holds have names of their own.
        tres = next((self.keys[name] for name in ("TRES", "AllocTRES", "ReqTRES")
                     if self.keys.get(name, "(null)") != "(null)"), "")
        tres = dict(item.split("=", 1) for item in tres.split(",") if "=" in item)
        # Without nodes Slurm counts no GPUs, whatever the job asks for.
        self.counted = int(tres.get("gres/gpu", 0)) if int(tres.get("node", 0)) else None
        self.forms = {form: gres_items(self.keys.get("Tres" + form))
                      for form in ("PerJob", "PerNode", "PerSocket", "PerTask")}

    def short(self):
        """What the judge looks at, in one line."""
        return " ".join(f"{key}={value}" for key, value in self.keys.items()
                        if key.startswith("Tres") or key in SHOWN)

    def kinds(self):
        return {kind for items in self.forms.values() for name, kind in items if name == "gpu"}

    def names(self):
        return {name for items in self.forms.values() for name, _ in items}

    def sizes(self):
        """The numbers of GPUs it may get: what its own words come to, and what Slurm counts. After
        an update Slurm counts only the words of that update, so less than they say means nothing.
        Once it has started, those that it has."""
        if self.started:
            return {self.counted or 0}
        low, high = self.spelled()
        if high and (self.counted is None or self.counted <= high):
            return {low, high}
        return {self.counted or 0} | ({low, high} if high else set())

    def contract_sizes(self):
        """The sizes that its contract names; None: it shows no contract."""
        found = re.search(r" AdminComment=bellows/1 (?:\S+ )*?gpus=(\S+)", self.line)
        if not found:
            return None
        return frozenset([0]) if found[1] == "0" else parse_range(found[1])

    def spelled(self):
        """The least and the most GPUs by the job's own words. Words that Slurm does not know (it
        shows them, too) are none."""
        least, most = 0, 0
        for kind in self.kinds():
            job, node, socket, task = (self.forms[form].get(("gpu", kind), 0)
                                       for form in ("PerJob", "PerNode", "PerSocket", "PerTask"))
            if job:
                low = high = job
            else:
                tasks = max(self.tasks, self.nodes[0])
                low = max(node * self.nodes[0], task * tasks, socket)
                high = max(node * (self.nodes[1] or 0), task * tasks)
                if socket or (node and self.nodes[1] is None):
                    high = MOST_GPUS + 1
            least, most = least + low, most + high
        return least, most


class Judge:
    """Holds jobs against the policy: each verdict is a list of sentences, empty if all is well."""

    def __init__(self, policy):
        self.policy = policy

    def job(self, request, job):
        """`request`: the options asked for, whether its size was left `open`, `named_qos`; the judge
        adds the `tenant` and the `first` size that it saw."""
        options = request["options"]
        if not options:
            return [f"a plain job in partition {name}" for name in job.partitions
                    if self.policy.plain_refused(name)]
        wrong = [f"{name} has {len(values)} values" for name, values in options.items()
                 if len(values) > 1]
        if "HetJobId" in job.keys:
            wrong.append("a part of a heterogeneous job")
        tenants = {self.policy.tenant(job.user, job.account, name) for name in job.partitions}
        tenant = tenants.pop()
        if tenant is None or tenants:
            return [*wrong, f"account {job.account}, partition {job.partitions}: no single tenant"]
        return wrong + self._rights(tenant, request, job) + self._sizes(tenant, request, job)

    def _rights(self, tenant, request, job):
        options, wrong = request["options"], []
        if request.setdefault("tenant", tenant.name) != tenant.name:
            wrong.append(f"moved from tenant {request['tenant']} to {tenant.name}")
        if tenant.suspended:
            wrong.append(f"tenant {tenant.name} is suspended")
        if not self.policy.framework(tenant, first(options, "framework"))[0]:
            wrong.append(f"tenant {tenant.name} may not use {options['framework']}")
        if "batch_range" in options and not tenant.batch_range:
            wrong.append("--batch-range is not allowed")
        for text in options.get("container", ()):
            image = re.search(r"(?:^|,)image:([^,]*)", text)
            if image and (".." in image[1] or not matches(tenant.images, image[1])):
                wrong.append(f"tenant {tenant.name} may not bring image {image[1]}")
        open_partitions = tenant.sizing.get("partitions")
        for name in job.partitions:
            if open_partitions and not matches(open_partitions, name):
                wrong.append(f"partition {name} is not open to {tenant.name}")
        allowed = [pattern.lower() for pattern in tenant.sizing.get("qos_allowed") or []]
        if allowed and request.get("named_qos") and not matches(allowed, job.keys["QOS"].lower()):
            wrong.append(f"QOS {job.keys['QOS']} is not open to {tenant.name}")
        limit = shown_minutes(job.keys["TimeLimit"])
        if tenant.time_max and (limit is None or limit > tenant.time_max):
            wrong.append(f"TimeLimit={job.keys['TimeLimit']}, most {tenant.time_max} minutes")
        return wrong

    def allowed_sizes(self, tenant, request, job):
        """The sizes that the job may have now and later: several only if it is elastic."""
        options = request["options"]
        _, name, version = self.policy.framework(tenant, first(options, "framework"))
        limits = tenant.limits_for(name, version)
        wanted = parse_range(first(options, "gpus_range"))
        if "gpus_range" not in options:
            wanted = limits.range if limits.range and request["open"] else limits.sizes
            fixed = wanted is limits.sizes
        else:
            fixed = False
            wanted = wanted if wanted and wanted <= limits.sizes else frozenset()
        size = request.setdefault("first", min(job.sizes()))
        # Alone among all jobs, one that has only a container may have none.
        if size == 0 and set(options) == {"container"}:
            return limits, frozenset([0])
        if fixed or not job.batch:
            wanted = wanted & {size}
        return limits, wanted

    def _sizes(self, tenant, request, job):
        limits, allowed = self.allowed_sizes(tenant, request, job)
        wrong = []
        for count in sorted(job.sizes() - allowed):
            wrong.append(f"{count} GPUs, not one of {sorted(allowed)[:12]}")
        if not job.sizes() <= (job.contract_sizes() or frozenset()):
            wrong.append(f"{sorted(job.sizes())} GPUs under a contract of {sorted(job.contract_sizes() or ())[:12]}")
        if limits.types and not job.kinds() <= set(limits.types):
            wrong.append(f"GPU types {sorted(job.kinds())}, not only {limits.types}")
        if job.names() & {"shard", "mps", "mig"} or any("g." in kind for kind in job.kinds()):
            wrong.append("a share or a slice of a GPU")
        if job.whole_nodes or job.keys["CoreSpec"] not in ("*", ""):
            wrong.append("all GPUs of its nodes")
        if limits.max_nodes and not limits.each and (job.nodes[1] or MOST_GPUS) > limits.max_nodes:
            wrong.append(f"nodes {job.keys['NumNodes']}, most {limits.max_nodes}")
        whole = limits.each if job.sizes() != {0} else None  # a job without GPUs takes no whole nodes
        if whole and not request.get("torn") and job.nodes != (max(job.sizes()) // whole,) * 2:
            wrong.append(f"{job.sizes()} GPUs on nodes {job.keys['NumNodes']}, {limits.each} on each")
        if len(allowed) > 1 and job.keys["Requeue"] != "1":
            wrong.append("an elastic job that cannot be requeued")
        return wrong


def first(options, name):
    return next(iter(options.get(name, ())), None)
