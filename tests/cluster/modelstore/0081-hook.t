#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 60
# The hook with the real safetensors, and with a newer PyTorch, in a root directory of Debian 13, which is
# kept in build/newer/hook-trixie. The model store is this machine's.

# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
[[ -n ${BELLOWS_LONG:-} ]] || skip_all "a Debian 13 with PyTorch takes minutes: only with BELLOWS_LONG=1"
((EUID == 0)) || skip_all "this needs root, to make a system and to enter it"

# shellcheck disable=SC2034  # read by the parts
top=$(cd "$TAP_HOME/../.." && pwd)
build=${BELLOWS_BUILDDIR:-$top/build}
for part in common apt root; do
  # shellcheck source=/dev/null
  . "$top/tests/lib/$part.sh"
done
root=${BELLOWS_NEWER_DIR:-$build/newer}/hook-trixie

make_root() {
  local source
  [[ ! -d $root ]] || return 0
  command -v mmdebstrap > /dev/null && source=$(suite_source trixie) || return 1
  mkdir -p "${root%/*}" && rm -rf "$root.new"
  mmdebstrap --variant=minbase --include=python3-minimal,python3-torch,python3-safetensors,python3-numpy trixie \
    "$root.new" "$source" > "$root.log" 2>&1 && mv "$root.new" "$root"
}
make_root || skip_all "no root directory of Debian 13 could be made: see ${root#"$top/"}.log"

dir=$(mktemp -d "${BELLOWS_TESTDIR:-/srv}/bellows-hook-XXXXXX")
cleanup() {
  local status=$?
  trap - EXIT
  if ((tap_failed)); then tail -n 8 "$dir"/log >&2; fi
  [[ -z ${daemon-} ]] || { kill -9 "$daemon" && wait "$daemon"; } 2> /dev/null
  rm -rf -- "$dir"
  (exit "$status")
  tap_end
}
trap cleanup EXIT

# A Python program in that root: inside NAME=VALUE.. -- ARGUMENT..
inside() {
  local settings=()
  while [[ $1 != -- ]]; do
    settings+=("$1")
    shift
  done
  shift
  (
    mkdir -p "$root/root/bellows"
    enter_root "$root" "$dir" "$top/python" "$top/tests/unit/python" "$build/modelstore/.libs" -- \
      env BELLOWS_MODEL_SOCKET="$dir/socket" PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$top/python/bellows/site" \
      BELLOWS_MODEL_LIBRARY="$build/modelstore/.libs/libbellows_model.so.0" "${settings[@]}" \
      timeout "$(seconds 300)" /usr/bin/python3 "$@"
  )
}

inside PYTHONPATH="$top/python:$top/tests/unit/python" -- "$top/tests/unit/python/hook_files.py" "$dir" ||
  bail "the files of the test cannot be written"
inside PYTHONPATH="$top/python" -- - "$dir" << 'END' || bail "the state dict of the test cannot be converted"
import sys, torch
from bellows import models
torch.save(torch.nn.BatchNorm1d(5).state_dict(), sys.argv[1] + "/norm.pt")
models.convert(sys.argv[1] + "/norm.pt", sys.argv[1] + "/norm.safetensors")
END
"$build/modelstore/bellows-modeld" --run="$dir/run" --budget=64M --alone=1 --small-pages \
  --helpers="$build/modelstore" --model=a="$dir/a.safetensors",tenant=a --model=half="$dir/half.safetensors",tenant=a \
  --model=eight="$dir/eight.safetensors",tenant=a --model=parts="$dir/parts",tenant=a \
  --model=norm="$dir/norm.safetensors",tenant=a \
  --socket="$dir/socket",tenant=a 2> "$dir/log" &
daemon=$!
poll 20 test -S "$dir/socket" || bail "bellows-modeld does not start"

program=$top/tests/unit/python/hook_program.py
inside -- "$program" "$dir" > "$dir/without" || bail "the program does not run without the hook"
prints_the_same() {
  inside BELLOWS_MODELS=verbose -- "$program" "$dir" > "$dir/with" 2> "$dir/said" && diff "$dir/without" "$dir/with"
}
ok "a program prints the same with the real safetensors and with the hook" prints_the_same
for name in a half parts/model-00001-of-00002 parts/model-00002-of-00002; do
  ok "its file $name comes from the model store" grep -q "/$name.safetensors comes from the model store" "$dir/said"
done
is "$(grep -c 'read as usual' "$dir/said")" 2 "no more than what is absent is read as usual"

# Floats of a byte, and a module that takes its parameters over.
inside PYTHONPATH="$top/python" -- - "$dir" > "$dir/newer" 2>&1 << 'END'
import sys, torch
from bellows import models
model = models.open("eight")
print(model["q"].dtype, model["q"].float().tolist())
module = torch.nn.Linear(3, 2, device="meta")
model = models.open("file:" + sys.argv[1] + "/eight.safetensors")
state = {name: model[name] for name in ("weight", "bias")}
print(module.load_state_dict(state, assign=True))
print(module.weight.data_ptr() == model.info("weight").address, module(torch.ones(3)).tolist())
END
is "$(cat "$dir/newer")" "torch.float8_e5m2 [1.0, 1.0, 1.0, 1.0]
<All keys matched successfully>
True [4.0, 13.0]" "float8 and load_state_dict(assign=True) take the memory"

inside BELLOWS_MODELS=verbose BELLOWS_MODELS_MAP="$dir/norm.pt=$dir/norm.safetensors" -- - "$dir" \
  > "$dir/loaded" 2>&1 << 'END'
import sys, torch
state, plain = torch.load(sys.argv[1] + "/norm.pt"), torch.load(open(sys.argv[1] + "/norm.pt", "rb"))
print(list(state) == list(plain), state._metadata == plain._metadata, all(torch.equal(state[k], plain[k]) for k in plain))
END
is "$(cat "$dir/loaded")" "bellows: $dir/norm.pt comes from the model store
True True True" "torch.load gives the same from the store"
done_testing
