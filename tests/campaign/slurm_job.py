# SPDX-License-Identifier: Apache-2.0
"""What Slurm says of a job of a campaign."""
import re


def show(cluster, job):
    """All that scontrol shows of it, in one line."""
    return cluster.exec("scontrol", "--oneliner", "--details", "show", "job", str(job.id), user="root")


def value(shown, name):
    """One field of that."""
    found = re.search(rf"\b{name}=(\S+)", shown)
    return found[1] if found else ""


def field(cluster, job, name):
    return value(show(cluster, job), name)


def hosts(cluster, names):
    """The nodes of n[1-3]."""
    return cluster.exec("scontrol", "show", "hostnames", names, user="root").split()


def nodes_in(cluster, shown):
    nodes = value(shown, "NodeList")
    return hosts(cluster, nodes) if nodes and nodes != "(null)" else []


def nodes_of(cluster, job):
    return nodes_in(cluster, show(cluster, job))


def gpus_of(cluster, job):
    """As many as it has or waits for."""
    found = re.search(r"gpu:(\d+)", field(cluster, job, "TresPerJob"))
    return int(found[1]) if found else 0


def gpus_held(cluster, shown):
    """On its nodes, by the devices."""
    parts = re.findall(r" Nodes=(\S+) [^=]*CPU_IDs=\S+ .*?GRES=gpu:(\d+)", shown)
    return sum(len(hosts(cluster, nodes)) * int(gpus) for nodes, gpus in parts)
