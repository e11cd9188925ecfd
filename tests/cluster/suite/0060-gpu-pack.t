#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 60
# The folder that tries Bellows on a real GPU, in a bare Debian with a driver that is not real: what needs
# no GPU is done there, and the rest says why it is not. Only in the long form: the folder takes minutes.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"

[[ -n ${BELLOWS_LONG:-} ]] || skip_all "the folder takes minutes to make: only with BELLOWS_LONG=1"

top=$(cd "$TAP_HOME/../.." && pwd)
# Goes with the test, as clusters do.
scratch=$(mktemp -d)
tap_clusters+=("$scratch")
mkdir "$scratch/log"
bare=$scratch/bare
# shellcheck source=tests/lib/root.sh
. "$top/tests/lib/root.sh"

is "$("$top/tests/gpu/pack" --nonsense > "$scratch/log/usage" 2>&1; echo $?)" 2 "pack: wrong usage"
ok "pack makes the folder" "$top/tests/gpu/pack" "$scratch/folder"
size=$(du -s --apparent-size -BM "$scratch/folder" | tr -dc '0-9\t' | cut -f 1)
ok "of less than 60 MB ($size)" test "$size" -lt 60
isnt "$("$top/tests/gpu/pack" "$scratch/folder" 2>&1)" "" "and takes no other for it"

mmdebstrap --quiet --variant=minbase --include=iproute2 bookworm "$bare" > "$scratch/log/mmdebstrap" 2>&1 || bail "mmdebstrap failed"
cp -r "$scratch/folder" "$bare/root/folder"
fake_driver() { # CFLAGS...
  gcc -shared -fPIC "$@" -o "$bare/usr/lib/x86_64-linux-gnu/libcuda.so.1" "$top/tests/gpu/fake_driver.c" &&
    chroot "$bare" ldconfig
}
# The folder's points as "POINT RESULT".
points() { # OPTION...
  status=0
  in_chroot "$bare" /root/folder/run "$@" > "$scratch/log/run" 2>&1 || status=$?
  jq -r '.[] | "\(.point) \(.result)"' "$bare/root/folder/results.json"
}

is "$(points | xargs)" "driver skipped cuda skipped checkpoint skipped model skipped paramserver skipped cluster ok fence ok fence.none ok container ok container.driver skipped requeue skipped" \
  "without a driver there is a cluster, its fence and a container"
fake_driver
is "$(points --only cuda | xargs)" "cuda ok" "a driver that the machine's linker knows is found"
points --only cuda > /dev/null
is "$status" 0 "which is success"
like "$(jq -r '.[].text' "$bare/root/folder/results.json")" "^1 GPU, no real GPU 0, 64 MiB copied" "and says so"
is "$(points --only model | xargs)" "model ok model.write ok" "with it the model store lends memory of the GPU"
diag "$(jq -c '.[] | .figures' "$bare/root/folder/results.json" | xargs)"
is "$(points --only paramserver | xargs)" "paramserver ok" "a learner has the GPU's gradients applied, and the weights there"
like "$(jq -c '.[].figures' "$bare/root/folder/results.json")" '"paramserver.gpu_gradient":{"ratio"' "and compares its copies"
fake_driver -DFORGETS
is "$(points --only model | xargs)" "model failed model.write failed" "and none where the GPU loses a byte"
is "$(points --only paramserver | xargs)" "paramserver failed" "nor is a learner's weight right there"
points --only cuda > "$scratch/log/forgets"
is "$status $(xargs < "$scratch/log/forgets")" "1 cuda failed" "one that loses a byte is not"
is "$(find "$bare/tmp" -mindepth 1)" "" "nothing is left"
done_testing
