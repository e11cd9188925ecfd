# SPDX-License-Identifier: Apache-2.0
"""Images that users bring: squashfs files of their own, which a server of theirs reads, beside the same content as
root's, which the kernel mounts; images out of a registry; and what a job pays that may start containers and doesn't.

Compared samples are taken in turns. pyxis's figures are those of container.py: it is not installed here.
"""
import contextlib
import os
import re
import shutil
import subprocess

import cluster
import container
import rows
from container_place import SIZES_MB, Place

ROUNDS = 24
JOBS = 48
READS = 8
IMPORTS = 8
LARGE = SIZES_MB[1]
LAYER_BYTES = 100_000_000  # the upper of the registry's image's two layers
FIRST_MS = 150
JOIN = 1.05
INSIDE = container.INSIDE
REGISTRY = "n1:5000"
NAME = f"{REGISTRY}#bench/image:1"

READ = "read begin x </proc/uptime; cat /usr/lib/data* >/dev/null; read end x </proc/uptime; echo read $begin $end"
READ_TIMES = re.compile(r"^read (\S+) (\S+)$", re.MULTILINE)


def own_image(place):
    """A file of alice's, outside of the site's directories, with the bytes of root's."""
    path = f"{place.scratch}/own.sqsh"
    shutil.copy(place.image(LARGE, ".sqsh"), path)
    user = os.stat(place.cluster.home())
    os.chown(path, user.st_uid, user.st_gid)
    return path


def starts(place, images, count):
    """Milliseconds to main() in a job of its own, whose first container is made, and of a second step in it."""
    found = {}
    for i in range(count):
        for name in sorted(images, reverse=i % 2 == 0):
            place.renew()
            for kind in ("first", "join"):
                sample = place.step(place.boxed, f"--container-image={images[name]}", INSIDE)
                found.setdefault(f"{kind}_{name}", []).append(sample.to_main_ms)
    return found


def start_rows(found):
    size = f"{LARGE}mb"
    peer = container.PYXIS["squashfuse"]
    result = [rows.row(f"image.first_own_{size}_ms", found["first_own"], "ms", "lower", FIRST_MS, peer),
              rows.row(f"image.first_site_{size}_ms", found["first_site"], "ms", "lower", baseline=peer)]
    for name in ("own", "site"):
        result.append(rows.row(f"image.join_{name}_{size}_ms", found[f"join_{name}"], "ms", "lower"))
    for kind, goal in (("first", None), ("join", JOIN)):
        ratio = container.ratio(found[f"{kind}_own"], found[f"{kind}_site"])
        result.append(rows.row(f"image.{kind}_own_vs_site", ratio, "x", "lower", goal))
    return result


def read_rate(place, path):
    """MB/s of all of an image's data, read for the first time by a job, from a file that is in memory."""
    done = place.timer.timed("srun", "--ntasks=1", f"--container-image={path}", "/bin/sh", "-c", READ)
    begin, end = map(float, READ_TIMES.search(done.out).groups())
    return LARGE * (1 << 20) / 1e6 / max(end - begin, 0.01)


def read_rows(place, images, count):
    found = {name: [] for name in images}
    for i in range(count):
        for name in sorted(images, reverse=i % 2 == 0):
            found[name].append(read_rate(place, images[name]))
    result = [rows.row(f"image.read_{name}_mbps", values, "MB/s", "higher") for name, values in found.items()]
    return result + [rows.row("image.read_own_vs_site", container.ratio(found["own"], found["site"]), "x", "higher",
                              note="a server of the user's (squashfuse) against the kernel")]


@contextlib.contextmanager
def registry(place):
    """On the first node, with one image."""
    os.mkdir(f"{place.scratch}/registry")
    config = f"{place.scratch}/registry.yml"
    with open(config, "w", encoding="utf-8") as stream:
        stream.write(f'version: 0.1\nlog: {{level: error}}\nhttp: {{addr: "{REGISTRY}"}}\n'
                     f"storage: {{filesystem: {{rootdirectory: {place.scratch}/registry}}}}\n")
    containers = f"{place.cluster.home()}/.config/containers"
    os.makedirs(containers)
    with open(f"{containers}/registries.conf", "w", encoding="utf-8") as stream:
        stream.write(f'[[registry]]\nlocation = "{REGISTRY}"\ninsecure = true\n')
    layout = f"{place.scratch}/layout"
    subprocess.run([f"{cluster.TOP}/tests/cluster/programs/oci_image.py", "--random", str(LAYER_BYTES), layout,
                    place.image(SIZES_MB[0])], check=True, timeout=300)
    command = [cluster.MINICLUSTER, "exec", "--dir", place.cluster.dir, "--user", "root", "--node", "1", "--",
               "docker-registry", "serve", config]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            cluster.wait(lambda: push(place, layout), 60, "registry")
            yield
        finally:
            server.terminate()


def push(place, layout):
    try:
        place.cluster.exec("skopeo", "--insecure-policy", "copy", "--dest-tls-verify=false", f"oci:{layout}",
                           f"docker://{NAME.replace('#', '/')}", user="root", node=1, timeout=120)
    except RuntimeError:
        return False
    return True


def imports(place, count):
    """Milliseconds of imports into an empty cache and one that has the image, and of a mere copy by skopeo."""
    home = place.cluster.home()
    program = f"{place.builddir}/image/bellows-image"
    found = {"cold": [], "hit": [], "skopeo": []}
    for i in range(count):
        for name in sorted(("cold", "skopeo"), reverse=i % 2 == 0):
            if name == "cold":
                for kind in ("cold", "hit"):
                    seconds, _ = place.timer(program, "import", f"--cache={home}/cache{i}", NAME)
                    found[kind].append(seconds * 1000)
            else:
                seconds, _ = place.timer("skopeo", "--insecure-policy", "copy",
                                         f"docker://{NAME.replace('#', '/')}", f"oci:{home}/copy{i}:x")
                found[name].append(seconds * 1000)
        for path in (f"{home}/cache{i}", f"{home}/copy{i}"):
            shutil.rmtree(path)
    return found


def import_rows(place, options):
    missing = [name for name in ("docker-registry", "skopeo") if not shutil.which(name)]
    if missing:
        return [rows.left_out("image.import_ms", f"{missing[0]} is not installed")]
    with registry(place):
        cluster.note("imports")
        found = imports(place, options.count(IMPORTS))
        cluster.note("steps in an image out of a registry, which is in the cache")
        images = {"imported": f"docker://{NAME}", "site": place.image(SIZES_MB[0])}
        place.step(place.boxed, f"--container-image={images['imported']}", INSIDE)
        begun = starts(place, images, options.count(ROUNDS))
    note = "two layers, 121 MB, from a registry on the same machine"
    return [rows.row("image.import_ms", found["cold"], "ms", "lower", note=note),
            rows.row("image.import_vs_skopeo", container.ratio(found["cold"], found["skopeo"]), "x", "lower",
                     note="against a copy that is not unpacked"),
            rows.row("image.import_hit_ms", found["hit"], "ms", "lower"),
            rows.row("image.first_imported_ms", begun["first_imported"], "ms", "lower"),
            rows.row("image.first_imported_vs_site", container.ratio(begun["first_imported"], begun["first_site"]), "x",
                     "lower", note="asks the registry what the name stands for"),
            rows.row("image.join_imported_vs_site", container.ratio(begun["join_imported"], begun["join_site"]), "x",
                     "lower", JOIN)]


def job_rows(place, count):
    """A job without container options: of a tenant that may bring images, and so has a contract, and of one that
    may not."""
    found = {"contract": [], "bare": []}
    options = {"contract": [], "bare": ["--account=bare"]}
    for i in range(count):
        for name in sorted(found, reverse=i % 2 == 0):
            sample, _ = place.job(*options[name], place.started())
            found[name].append(sample.to_main_ms)
    return [rows.row("image.plain_job_ms", found["contract"], "ms", "lower"),
            rows.row("image.plain_job_vs_bare", container.ratio(found["contract"], found["bare"]), "x", "lower", JOIN,
                     note="a tenant that may bring images against one that may not")]


def run(options):
    importer = f"image_importer={options.builddir}/image/bellows-image"
    with Place(options, registries=[f"docker://{REGISTRY}/*"], spank_args=importer) as place:
        images = {"own": own_image(place), "site": place.image(LARGE, ".sqsh")}
        cluster.note("jobs without containers")
        result = job_rows(place, options.count(JOBS))
        place.renew()
        if os.access("/usr/bin/squashfuse_ll", os.X_OK):
            cluster.note("squashfs files")
            result += start_rows(starts(place, images, options.count(ROUNDS)))
            result += read_rows(place, images, options.count(READS))
        else:
            result.append(rows.left_out(f"image.first_own_{LARGE}mb_ms", "squashfuse is not installed"))
        return result + import_rows(place, options)
