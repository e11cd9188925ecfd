# SPDX-License-Identifier: Apache-2.0
"""Models that are not in memory: from their file, beside other readers of it, and from the disk tier's image."""
import os
import re
import statistics
import subprocess
import tempfile

import cluster
import rows
from modelstore_place import (GIGABYTE, QUICK_LARGE, Asker, SharedHugePages, Store, drop_cache, evict, made_network,
                              raw_seconds, why_no_huge_pages, why_no_torch)

PEERS = {"torch_load": "torch.load", "read": "a plain reader of safetensors"}
LOADS = 4
IMAGES = 6
LOAD_GOAL = 1
DISK_GOAL = 0.9


def load_round(store, asker, what, cached):
    """Seconds until a program has the tensors, by way."""
    seconds = {}
    for how in ("store", *PEERS):
        if how == "store":
            evict(store, what["store"])
        path = what["pt" if how == "torch_load" else "safetensors"]
        if cached:
            with open(path, "rb", buffering=0) as file:
                while file.read(1 << 24):
                    pass
        else:
            drop_cache(path)
        seconds[how] = asker.ask(f"load {how}")[0]
    return seconds


def rows_of_loads(options, pages, size):
    result = []
    more = ["--small-pages"] if pages == "small" else []
    with tempfile.TemporaryDirectory(prefix="bench-networks-", dir=options.builddir) as directory:
        what = made_network(options, directory, "large", size)
        with Store(options, {what["store"]: what["safetensors"]}, *more) as store, Asker(options, store, what) as asker:
            asker.ask("load store")
            for state in ("dropped", "cached"):
                rounds = [load_round(store, asker, what, state == "cached") for _ in range(options.count(LOADS))]
                ours = statistics.median(each["store"] for each in rounds)
                for peer, says in PEERS.items():
                    result.append(rows.row(
                        f"modelstore.cold_vs_load.{pages}_pages.{state}.{peer}",
                        [each[peer] / each["store"] for each in rounds], "x", "higher", LOAD_GOAL,
                        (f"{says}, s", statistics.median(each[peer] for each in rounds)),
                        note=f"until a program has the tensors of {size >> 20} MB, which are in no memory; the file "
                             f"is {'in' if state == 'cached' else 'not in'} the page cache: {ours:.3f} s with the "
                             "store, with its digest" if peer == "torch_load" else None))
    return result


def load_rows(options, size):
    why = why_no_torch()
    if why:
        return [rows.left_out("modelstore.cold_vs_load", why)]
    result = rows_of_loads(options, "small", size)
    why = why_no_huge_pages()
    if why:
        return [*result, rows.left_out("modelstore.cold_vs_load.huge_pages", why)]
    with SharedHugePages():
        return [*result, *rows_of_loads(options, "huge", size)]


def image_in(directory):
    """The path of the one image; None: it is not there yet."""
    names = [name for name in os.listdir(directory) if re.fullmatch("[0-9a-f]{64}", name)]
    return f"{directory}/{names[0]}" if names else None


def disk_row(options, size):
    with tempfile.TemporaryDirectory(prefix="bench-disk-", dir=options.builddir) as disk:
        with Store(options, {"large": size}, f"--disk={disk}=4G,files=yes") as store:
            store.samples("open", "large", 1)
            cluster.wait(lambda: store.said("stored "), 120, "the model's image")
            image = image_in(disk)
            pairs = []
            for _ in range(options.count(IMAGES)):
                cluster.wait(lambda: evicted(store, "large"), 60, "the model's last reader")
                drop_cache(image)
                raw = raw_seconds(store, image)
                done = subprocess.run(store.command("open", "large", 1), check=True, capture_output=True, text=True,
                                      timeout=300)
                pairs.append((raw, float(done.stdout) / 1e6))
            if store.said("from its image on the disk") < len(pairs):
                raise RuntimeError("the model was not loaded from its image")
    return rows.row("modelstore.disk_vs_raw", [raw / ours for raw, ours in pairs], "x", "higher", DISK_GOAL,
                    ("a raw read of the image, s", statistics.median(raw for raw, _ in pairs)),
                    note="from the disk tier's image to lent, held against its digest, against a read past the page "
                         f"cache: {statistics.median(ours for _, ours in pairs):.3f} s for {size >> 20} MB")


def evicted(store, model):
    try:
        evict(store, model)
    except RuntimeError:
        return False
    return True


def run(options):
    size = QUICK_LARGE if options.quick else GIGABYTE
    return [*load_rows(options, size), disk_row(options, size)]
