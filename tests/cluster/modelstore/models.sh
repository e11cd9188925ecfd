# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For tests of jobs that borrow models: a cluster with two tenants, and models of one tensor. After tap.sh.

build=${BELLOWS_BUILDDIR:-$(realpath "$TAP_HOME/../..")/build}
borrow=$build/tests/cluster/programs/borrow
[[ -x $borrow ]] || skip_all "$borrow is not built"

# A cluster with bellows-modeld, whose jobs are the tenant vision's unless they name speech. Standard input is the list
# of models in bellows.yaml.
models_up() { # OPTION-OF-UP...
  local conf
  conf=$(mktemp)
  {
    printf '%s\n' 'version: 1' 'frameworks:' '  plain:' 'tenants:' '  vision:' '    accounts: [vision]' '  speech:' \
      'default_tenant: vision' 'models:'
    cat
  } >"$conf"
  cluster_up "$@" --modelstore --bellows-conf "$conf"
  rm -f "$conf"
  home=$CLUSTER/shared/home/alice
  chmod 755 "$home" "$CLUSTER/shared/home/carol"
}

# A file of one tensor, w, of so many bytes of this value.
write_model() { # FILE BYTES VALUE
  python3 - "$@" <<'PY'
import json, struct, sys
size = int(sys.argv[2])
header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
with open(sys.argv[1], "wb") as file:
    file.write(struct.pack("<Q", len(header)) + header + bytes([int(sys.argv[3])]) * size)
PY
}

run() { xc srun --quiet --mpi=none "$@" 2>&1; }
as_carol() { xc --user carol srun --quiet --mpi=none -A speech "$@" 2>&1; }
said() { cat "$home/$1" 2>/dev/null; } # FILE
says() { grep -q "$2" "$home/$1" 2>/dev/null; } # FILE REGEX
refusal() { # OPTION-OF-SBATCH...
  if xc sbatch --parsable "$@" --wrap true 2>&1; then echo "was accepted"; fi
}
