#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 60
# PyTorch out of an image with an HDF5 of its own, another than the agents': a training that uses both
# is resized from 2 ranks to 4 and to 1, and its checkpoint opens with either. Only in the long form:
# the packages are 300 MB to fetch and 1.2 GB to lay out.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/images.sh
. "$TAP_HOME/images.sh"

[[ -n ${BELLOWS_LONG:-} ]] || skip_all "a Debian image with PyTorch takes minutes: only with BELLOWS_LONG=1"
command -v mmdebstrap >/dev/null || skip_all "the Debian package mmdebstrap is not installed"
command -v h5dump >/dev/null || skip_all "h5dump is missing: apt-get install hdf5-tools"

top=$(dirname "$(dirname "$TAP_HOME")")
build=${BELLOWS_BUILDDIR:-$top/build}
data=$build/data/digits.csv.gz
[[ -r $data ]] || skip_all "$data is missing"

# Ranks read PyTorch out of an image that nothing has in its cache yet.
export TAP_LIMIT=300
container_cluster_up "" --nodes=2 --gpus=4
home=$CLUSTER/shared/home/alice
# shellcheck disable=SC2154
tree=$images/torch
make_debian "$tree" python3-torch,python3-h5py trixie >"$CLUSTER/log/mmdebstrap.log" 2>&1 || bail "mmdebstrap failed"
# Debian builds PyTorch without libuv, which it asks for unless told otherwise.
framework="versions: [\"2.6\"], default: \"2.6\", image: \"$tree\", env: {USE_LIBUV: \"0\"}"
framework+=", mounts: [\"$build/checkpoint/.libs:/opt/bellows:ro\"]"
sed -i "s#^  plain: .*#&\n  pytorch: {$framework}#" "$CLUSTER/etc/bellows.yaml"
cp -r "$top/examples/pytorch" "$top/python/bellows" "$home/"
install -m 644 "$data" "$home/digits.csv.gz"
# The training with h5py in the same process, which writes while the training saves.
cat >"$home/pytorch/with_h5py.py" <<'P'
import os
import runpy
import h5py
import torch.utils.data

own = h5py.File(f"own-{os.environ['SLURM_JOB_ID']}-{os.environ['WORLD_SIZE']}-{os.environ['RANK']}.h5", "w")
noted = own.create_dataset("noted", (0,), maxshape=(None,))
print("h5py with HDF5", h5py.version.hdf5_version, "torch", torch.__version__, "on", os.uname().nodename, flush=True)
batches = torch.utils.data.DataLoader.__iter__

def noting(loader):
    for batch in batches(loader):
        noted.resize((len(noted) + 1,))
        noted[-1] = float(len(batch[0]))
        own.flush()
        yield batch

torch.utils.data.DataLoader.__iter__ = noting
runpy.run_path(os.path.join(os.path.dirname(__file__), "train.py"), run_name="__main__")
P
chown -R 20001 "$home/pytorch" "$home/bellows"

train() { # NAME GPUS SBATCH-OPTION...
  submit --env BELLOWS_DIGITS="$home/digits.csv.gz" --env PYTHON=/usr/bin/python3 \
    --env TRAIN="$home/pytorch/with_h5py.py" --env PYTHONPATH="$home:$home/pytorch" \
    --env PYTHONDONTWRITEBYTECODE=1 --env BELLOWS_LIBRARY=/opt/bellows/libbellows.so.0 \
    -- --gpus="$2" "${@:3}" --output="$1.out" --container-mount-home --container-workdir="$home" \
    "$home/pytorch/train.sbatch" --epochs 40 --save-every 10 --ledger "$1.ledger" --losses "$1.losses"
}
step_of() { # JOB: of the newest committed checkpoint
  local newest
  newest=$(readlink "$CLUSTER/shared/checkpoints/alice/$1/latest") && echo "$((10#${newest##*step-}))"
}
past() { (($(step_of "$1") >= $2)); } # JOB STEP
said() { tail -n 20 "$home/$1.out"; }

poll 20 xc sbatch --test-only --framework=pytorch --gpus=2 --wrap true || bail "slurmctld does not take the framework"
job=$(train resized 2 --nodes=2)
like "$job" '^[0-9]+$' "alice submits the training to run in the image" || bail "no job"
ok "it trains on 2 ranks" poll 120 past "$job" 40 || bail "$(said resized)"
ok "it is resized to 4" xc bellows resize "$job" 4 || diag "$(said resized)"
ok "it trains on" poll 120 past "$job" "$(($(step_of "$job") + 30))" || diag "$(said resized)"
ok "it is resized to 1" xc bellows resize "$job" 1 || diag "$(said resized)"
ok "it completes" poll 180 job_is "$job" COMPLETED || diag "$(said resized)"
like "$(<"$home/resized.out")" 'step 920 ranks 1 accuracy 9[0-9]\.[0-9] %' "it reads 90 % of the held-out digits"
like "$(<"$home/resized.out")" 'HDF5 1\.14\.[^ ]* torch 2\.6[^ ]* on n2' "with the image's PyTorch and HDF5, also on the second node"
ledger=$("$top/tests/lib/check-ledger" "$home/resized.ledger" 2>&1)
is "$?" 0 "every sample of every epoch was used once" || diag "$ledger"
is "$(grep -o '[124] ranks' <<<"$ledger" | xargs)" "1 ranks 4 ranks 2 ranks" "on 2, on 4 and on 1 rank"
like "$ledger" ', 0 steps done again' "and no step was done twice"

alone=$(train alone 1)
ok "the same training on 1 rank, left alone" poll 180 job_is "$alone" COMPLETED || diag "$(said alone)"
compare=("$top/tests/lib/compare-losses" 920)
ok "has the same loss at each step, within rounding" "${compare[@]}" "$home/resized.losses" "$home/alone.losses"
diag "the most apart: $("${compare[@]}" "$home/resized.losses" "$home/alone.losses" 2>&1 | head -n 1)"

# The checkpoint, written with the machine's HDF5: the bytes of each array, as the image's h5py reads
# them and as the machine's h5dump does.
checkpoint=$(realpath "$CLUSTER/shared/checkpoints/alice/$job/latest")
install -d -o 20001 "$home/latest"
install -m 644 "$checkpoint"/*.h5 "$home/latest/"
cat >"$home/read.py" <<'P'
import hashlib
import h5py

def show(name, item):
    if isinstance(item, h5py.Dataset) and item.size:
        digest = hashlib.sha256(item[()].tobytes()).hexdigest()
        print("opaque" if item.dtype.kind == "V" else digest, name)

with h5py.File("latest/whole.h5") as file:
    file.visititems(show)
P
image=$(xc srun --quiet --mpi=none --container-image="$tree" --container-mount-home --container-workdir="$home" \
  /usr/bin/python3 read.py 2>&1)
like "$image" '[0-9a-f]{64} .*weight' "the image's h5py opens the checkpoint" || diag "$image"
like "$image" 'opaque .*rng' "and reads its opaque bytes, of which h5dump writes no binary form"
image=$(grep -v '^opaque ' <<<"$image")
machine=$(while read -r _ name; do
  h5dump -d "/$name" -b LE -o "$CLUSTER/dumped" "$home/latest/whole.h5" >/dev/null && echo "$(sha256sum <"$CLUSTER/dumped" | cut -d ' ' -f 1) $name"
done <<<"$image" 2>&1)
is "$machine" "$image" "and the machine's h5dump reads the same from it"
done_testing
