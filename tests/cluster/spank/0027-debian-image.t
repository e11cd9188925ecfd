#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 60
# PyTorch out of a Debian image that is made here, on two nodes, as an ordinary user. Only in the long
# form: the packages are 300 MB to fetch and 1.4 GB to lay out.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/images.sh
. "$TAP_HOME/images.sh"

[[ -n ${BELLOWS_LONG:-} ]] || skip_all "a Debian image with PyTorch takes minutes: only with BELLOWS_LONG=1"
command -v mmdebstrap >/dev/null || skip_all "the Debian package mmdebstrap is not installed"

# Four ranks read PyTorch out of an image that nothing has in its cache yet.
export TAP_LIMIT=300
container_cluster_up "" --nodes=2 --gpus=4
home=$CLUSTER/shared/home/alice
# shellcheck disable=SC2154
tree=$images/torch
squash=$images/torch.sqsh
make_debian "$tree" python3-torch >"$CLUSTER/log/mmdebstrap.log" 2>&1 || bail "mmdebstrap failed"
echo "IMAGE_SAYS=torch" >>"$tree/etc/environment"
mksquashfs "$tree" "$squash" -quiet -no-progress -comp zstd -Xcompression-level 3 >/dev/null ||
  bail "mksquashfs failed"
diag "the image: $(du -sm "$tree" | cut -f 1) MB, as squashfs $(du -sm "$squash" | cut -f 1) MB"

ranks=(--nodes=2 --ntasks=4 --ntasks-per-node=2 --gpus-per-task=1)
python() { # OPTION-OF-SRUN... PROGRAM
  xc srun --quiet --mpi=none "${@:1:$#-1}" /usr/bin/python3 -c "${!#}" 2>&1
}
one() { python -w n1 --container-image="$squash" "$@"; }

# It is the image's own Python that runs, with the image's own PyTorch.
where='import os, torch; print(os.uname().nodename, os.getuid(), os.environ["IMAGE_SAYS"], torch.__version__, torch.__file__)'
torch=$(sed -n "s/^__version__ = '\(.*\)'/\1/p" "$tree/usr/lib/python3/dist-packages/torch/version.py")
says="20001 torch $torch /usr/lib/python3/dist-packages/torch/__init__.py"
isnt "$torch" "" "the image has PyTorch ${torch:-in no version}"
for image in "$squash" "$tree"; do
  is "$(python "${ranks[@]}" --container-image="$image" "$where" | sort | xargs -d '\n')" \
    "n1 $says n1 $says n2 $says n2 $says" "four ranks on two nodes import PyTorch from ${image##*/}"
done
is "$(one 'import getpass, pwd, os; print(getpass.getuser(), pwd.getpwuid(os.getuid()).pw_name)')" \
  "alice alice" "the user has his name in it"
like "$(one 'open("/usr/lib/python3/dist-packages/new.py", "w")')" 'Read-only file system' "it can't be written to"

# GPUs and /dev.
own='import glob, os, stat
print(os.uname().nodename, *[n for n in glob.glob("/dev/nvidia[0-9]*") if stat.S_ISCHR(os.stat(n).st_mode)])'
is "$(python "${ranks[@]}" --container-image="$squash" "$own" | sort | xargs)" \
  "n1 /dev/nvidia0 n1 /dev/nvidia1 n2 /dev/nvidia0 n2 /dev/nvidia1" "each rank has its own GPU and no other"
is "$(one --gpus=2 'import glob; print(len(glob.glob("/dev/nvidia[0-9]*")))')" 2 "two GPUs, where a job has two"
is "$(one 'import os; print(*sorted(n for n in os.listdir("/dev") if not n.startswith("nvidia")))')" \
  "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero" "of the image's own /dev nothing is left"

# The home directory, the working directory, and shared memory for the workers of a loader.
at='import os; print(os.getcwd(), os.path.exists(os.path.expanduser("~/reduce.py")))'
cat >"$home/reduce.py" <<'P'
import os, torch
import torch.distributed as dist

rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
dist.init_process_group("gloo", rank=rank, world_size=size)
numbers = torch.full((100000,), float(rank + 1))
dist.all_reduce(numbers)
print(os.uname().nodename, dist.get_world_size(), numbers.unique().tolist(), flush=True)
dist.destroy_process_group()
P
cat >"$home/load.py" <<'P'
from torch.utils.data import DataLoader

loader = DataLoader(list(range(100)), batch_size=10, num_workers=2)
print(sum(int(batch.sum()) for batch in loader))
P
is "$(one "$at")" "/ False" "without options it begins in /, with no home"
is "$(one --container-mount-home "$at")" "/ True" "--container-mount-home"
is "$(one --container-mount-home --container-workdir="$home" "$at")" "$home True" "and --container-workdir in it"
is "$(xc srun --quiet --mpi=none -w n1 --container-image="$squash" --container-mount-home --container-workdir="$home" \
  /usr/bin/python3 load.py 2>&1)" 4950 "a loader's workers have shared memory"

# A batch job whose image the catalogue names.
sed -i "s#^  plain: .*#&\n  torch: {versions: [\"$torch\"], default: \"$torch\", image: \"$squash\"}#" "$CLUSTER/etc/bellows.yaml"
cat >"$home/train.sh" <<'S'
#!/bin/bash
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR MASTER_PORT=29500
srun --quiet --mpi=none --container-mount-home --container-workdir="$HOME" /usr/bin/python3 reduce.py
S
train=("${ranks[@]}" --framework=torch --output=train.out train.sh)
poll 20 xc sbatch --test-only "${train[@]}" || diag "$(xc sbatch --test-only "${train[@]}" 2>&1)"
ok "a batch job by its framework's name" xc sbatch --wait "${train[@]}"
is "$(sort "$home/train.out" | xargs -d '\n')" \
  "n1 4 [10.0] n1 4 [10.0] n2 4 [10.0] n2 4 [10.0]" "reduces a tensor over its four ranks"

for node in 1 2; do
  ok "nothing stays mounted on n$node" poll 10 nothing_mounted "$node"
done
done_testing
