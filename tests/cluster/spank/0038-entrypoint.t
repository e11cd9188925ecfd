#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 60
# An image's entrypoint, as enroot writes it, runs each task's program where it is asked for.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/images.sh
. "$TAP_HOME/images.sh"

container_cluster_up "" --nodes=1 --gpus=0
cp -r "$images/busybox" "$images/entry"
cat >"$images/entry/etc/rc" <<'S'
mkdir -p "/work" 2>/dev/null
echo "entry $# as $(id -u)"
export FROM_ENTRY=yes
exec "$@"
S
make_squashfs "$images/entry" "$images/entry.sqsh"
run() { xc srun --quiet --mpi=none "$@" 2>&1; }
entry() { run --container-image="$images/entry.sqsh" "$@"; }
shows='echo "$1 $2 ${FROM_ENTRY:-no} ${BELLOWS_PROGRAM:-unset}"'

is "$(entry --container-entrypoint sh -c "$shows" x 'a b' c | xargs -d '\n')" "entry 6 as 20001 a b c yes unset" \
  "--container-entrypoint gives the command to the image's /etc/rc, as the user"
is "$(entry -n2 --container-entrypoint sh -c "$shows" x a b | grep -c '^entry')" 2 "once for each task"
is "$(entry sh -c "$shows" x a b)" "a b no unset" "it is not run without"
like "$(run --container-image="$images/busybox.sqsh" --container-entrypoint true)" \
  'looking for the image.s entrypoint: cannot run .*/etc/rc: No such file.*leave out --container-entrypoint' \
  "an image without one is refused in words"
spank_args "image_dirs=$images entrypoint=yes"
is "$(entry sh -c "$shows" x a b | tail -n 1)" "a b yes unset" "the site may have it so"
is "$(entry --no-container-entrypoint sh -c "$shows" x a b)" "a b no unset" "--no-container-entrypoint"
is "$(run --container-image="$images/busybox.sqsh" echo ran)" ran "then images without one are run as they are"
is "$(xc env PYXIS_CONTAINER_ENTRYPOINT=0 srun --quiet --mpi=none --container-image="$images/entry.sqsh" sh -c "$shows" x a b 2>&1)" \
  "a b no unset" "the variable says the same"
done_testing
