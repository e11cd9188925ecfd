#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 60
# An image's entrypoint, as enroot writes it, runs before each task's program where it is asked for.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/images.sh
. "$TAP_HOME/images.sh"

container_cluster_up "" --nodes=1 --gpus=0
cp -r "$images/busybox" "$images/entry"
cat >"$images/entry/etc/rc" <<'S'
mkdir -p "/work" 2>/dev/null
echo "entry as $(id -u)"
export FROM_ENTRY="yes${DOCKER_TLS_VERIFY:+ tls} ${SAID_BY:-none}" FROM_IMAGE="$FROM_IMAGE+"
umask 077
[ -z "$ENTRY_FAILS" ] || exit 3
exec "$@"
S
printf '%s\n' 'FROM_IMAGE=image' >"$images/entry/etc/environment"
make_squashfs "$images/entry" "$images/entry.sqsh"
run() { xc srun --quiet --mpi=none "$@" 2>&1; }
entry() { run --container-image="$images/entry.sqsh" "$@"; }
shows='echo "$1 $2 ${FROM_ENTRY:-no} $FROM_IMAGE ${DOCKER_TLS_VERIFY:-unset}"'

is "$(entry --container-entrypoint --container-entrypoint-log sh -c "$shows" x 'a b' c | xargs -d '\n')" "entry as 20001 a b c yes none image+ unset" \
  "--container-entrypoint runs the image's /etc/rc as the user, and what it exports is the program's"
is "$(xc env PYXIS_CONTAINER_ENTRYPOINT_LOG=1 srun --quiet --mpi=none -n2 --container-image="$images/entry.sqsh" \
  --container-entrypoint true 2>&1 | xargs)" "entry as 20001 entry as 20001" "once for each task"
is "$(xc srun --quiet --mpi=none --container-image="$images/entry.sqsh" --container-entrypoint --container-entrypoint-log \
  echo program 2>/dev/null)" program "and what it writes is not among the program's output"
is "$(entry sh -c "$shows" x a b)" "a b no image unset" "it is not run without"
is "$(entry --container-remap-root --container-entrypoint --container-entrypoint-log sh -c 'echo $FROM_ENTRY $HOME' | xargs)" \
  "entry as 0 yes none /root" "also as root"
echo '0 env' >"$images/programs"
is "$(entry --container-entrypoint --multi-prog "$images/programs" | grep FROM_ENTRY)" "FROM_ENTRY=yes none" "it is with --multi-prog"
like "$(run --container-image="$images/busybox.sqsh" --container-entrypoint true)" \
  'looking for the image.s entrypoint: cannot run .*/etc/rc: No such file.*leave out --container-entrypoint' \
  "an image without one is refused in words"

# A job's environment of 1 MB, with what no shell hands on.
cat >"$images/big" <<'S'
for i in {0..9}; do
  printf -v "BIG$i" %0100000d 0
  export "BIG$i"
done
f() { :; }
export -f f
export ODD=$'a\n"b"' DOCKER_TLS_VERIFY=1 SAID_BY=job FROM_IMAGE=job
exec "$@"
S
xc bash "$images/big" srun --quiet --mpi=none --container-image="$images/entry.sqsh" --container-entrypoint \
  sh -c "$shows"'; cat /proc/$$/environ; exit 0' x a b 2>&1 | tr '\0' '\n' >"$CLUSTER/big"
is "$(sed -n 1p "$CLUSTER/big")" "a b yes none image+ 1" "the job's variables are the program's, and not the entrypoint's"
is "$(awk 'length == 100005 || /^(BASH_FUNC_f%%=.*|ODD=a|"b")$/' "$CLUSTER/big" | wc -l)" 13 "each of them, whatever it is"
is "$(xc env DOCKER_TLS_VERIFY=1 FROM_IMAGE=job srun --quiet --mpi=none --container-image="$images/entry.sqsh" \
  --container-entrypoint --container-env=DOCKER_TLS_VERIFY,FROM_IMAGE sh -c "$shows" x a b 2>&1)" \
  "a b yes tls none job 1" "--container-env gives them to it, and keeps them from it"

is "$(echo typed | entry --container-entrypoint sh -c 'cat; umask; exit 7' | sort | xargs -d '\n')" \
  "0022 srun: error: n1: task 0: Exited with exit code 7 typed" \
  "standard input is the program's, which an entrypoint's process does not touch"
out=$(xc env ENTRY_FAILS=1 srun --quiet --mpi=none --container-image="$images/entry.sqsh" --container-entrypoint \
  --container-env=ENTRY_FAILS echo it-began 2>&1)
like "$out" 'running the image.s entrypoint: /etc/rc exited with status 3 before it had started a program' \
  "an entrypoint that fails is said"
like "$out" 'entry as 20001.*running the image' "after what it wrote"
unlike "$out" 'it-began' "and the program is not started"

spank_args "image_dirs=$images entrypoint=yes"
is "$(entry sh -c "$shows" x a b)" "a b yes none image+ unset" "the site may have it so"
is "$(entry --no-container-entrypoint sh -c "$shows" x a b)" "a b no image unset" "--no-container-entrypoint"
is "$(run --container-image="$images/busybox.sqsh" echo ran)" ran "then images without one are run as they are"
is "$(xc env PYXIS_CONTAINER_ENTRYPOINT=0 srun --quiet --mpi=none --container-image="$images/entry.sqsh" sh -c "$shows" x a b 2>&1)" \
  "a b no image unset" "the variable says the same"
done_testing
