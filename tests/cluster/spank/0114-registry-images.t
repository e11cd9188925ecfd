#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 240
# Images out of a registry, which asks for a password: steps import them as their user, once for all tasks.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/images.sh
. "$TAP_HOME/images.sh"

for program in skopeo docker-registry perl; do
  command -v "$program" >/dev/null || skip_all "$program is not installed"
done
importer=${BELLOWS_BUILDDIR:-$(dirname "$(dirname "$TAP_HOME")")/build}/image/bellows-image
[[ -x $importer ]] || skip_all "$importer is not built"
container_cluster_up "image_importer=$importer" --nodes=2 --gpus=4
sed -i "s#images: \[\"#images: [\"docker://n1:5000/team/*\", \"docker://127.0.0.1:*\", \"#" "$CLUSTER/etc/bellows.yaml"
home=$CLUSTER/shared/home/alice
run() { xc srun --quiet --mpi=none "$@" 2>&1; }

# The image: busybox, and upon it a layer with a file of its own.
make_layout() { # NAME OPTION-OF-OCI_IMAGE...
  local name=$1
  shift
  "$TAP_HOME/programs/oci_image.py" --env IMAGE_SAYS=registry --workdir /work "$@" "$CLUSTER/$name" "$images/busybox" "$CLUSTER/top"
}
mkdir "$CLUSTER/top"
echo upper >"$CLUSTER/top/layer"
make_layout box

# A registry on the first node, for alice alone.
mkdir -p "$CLUSTER/registry/data"
perl -e 'print "alice:", crypt("secret", q($2y$05$abcdefghijklmnopqrstuu)), "\n"' >"$CLUSTER/registry/users"
cat >"$CLUSTER/registry/config.yml" <<END
version: 0.1
log: {level: error, accesslog: {disabled: false}}
storage: {filesystem: {rootdirectory: $CLUSTER/registry/data}}
http: {addr: "n1:5000"}
auth: {htpasswd: {realm: test, path: $CLUSTER/registry/users}}
END
"$MINICLUSTER" exec --dir "$CLUSTER" --user root --node 1 -- docker-registry serve "$CLUSTER/registry/config.yml" \
  >"$CLUSTER/registry/log" 2>&1 &
disown # bash would tell of its end
for who in alice bob; do
  mkdir -p "$CLUSTER/shared/home/$who/.config/"{containers,enroot}
  printf '[[registry]]\nlocation = "%s"\ninsecure = true\n' n1:5000 127.0.0.1:5001 \
    >"$CLUSTER/shared/home/$who/.config/containers/registries.conf"
done
echo 'machine n1:5000 login alice password secret' >"$home/.config/enroot/.credentials"
chown -R --reference="$home" "$home/.config"
chown -R --reference="$CLUSTER/shared/home/bob" "$CLUSTER/shared/home/bob/.config"
push() { # LAYOUT IMAGE
  mc exec --user root --node 1 -- skopeo --insecure-policy copy --dest-tls-verify=false --dest-creds alice:secret \
    "oci:$CLUSTER/$1" "docker://n1:5000/$2"
}
poll 20 push box team/box:1 || bail "the registry takes no image: $(push box team/box:1 2>&1; cat "$CLUSTER/registry/log")"
fetched() { grep -c "GET /v2/$1/blobs/sha256" "$CLUSTER/registry/log"; }

box=n1:5000#team/box:1
poll 10 xc sbatch --test-only --container-image="$box" --wrap true || bail "slurmctld does not take the policy"
is "$(run -N2 -n4 --container-image="$box" sh -c 'cat /layer; id -u; echo $IMAGE_SAYS' 2>/dev/null | sort | uniq -c | xargs)" \
  "4 20001 4 registry 4 upper" "four tasks on two nodes run in an image out of a registry"
is "$(fetched team/box)" 3 "which was fetched once: two layers and a configuration"
is "$(find "$home/.cache/bellows/images/images" -mindepth 1 -maxdepth 1 | wc -l)" 1 "into the user's home, which both have"
is "$(find "$home/.cache/bellows" ! -user "$(stat -c %u "$home")" | wc -l)" 0 "as the user"
run -w n2 --container-image="docker://$box" true
is "$(fetched team/box)" 3 "the next step fetches nothing"
said=$(run -w n1 --container-image="$box" --container-writable sh -c 'echo new >/new; echo more >>/layer; cat /new /layer' | xargs)
is "$said" "new upper more" "what a writable container writes"
is "$(find "$home/.cache" -name new) $(cat "$home"/.cache/bellows/images/images/*/rootfs/layer)" " upper" "does not get into the image"
like "$(run -w n1 --container-image="$box" sh -c 'echo new >/new')" 'Read-only file system' "nor can others write"
is "$(run -w n1 --container-image="$box" --container-remap-root stat -c %u /layer)" 0 "fake root has the image's files"

# A job that has used an image keeps it, by one process of its user's on each node, whatever its steps do.
id=$(xc salloc --no-shell -n1 -w n1 2>&1 | sed -n 's/.*Granted job allocation //p')
run --jobid="$id" --overlap --container-image="$box" true
run --jobid="$id" --overlap --container-image="$box" true
holders() { mc exec --user root --node 1 -- pgrep -f "bellows-image import .*--for-job=$id "; }
is "$(holders | wc -l)" 1 "a job's steps share a lease on their image"
is "$(mc exec --user root --node 1 -- stat -c %U "/proc/$(holders)")" alice "which a process of its user's holds"
like "$(xc --node 2 bellows-image list)" "job $id on n1" "list shows it on each node"
like "$(xc --node 2 bellows-image remove "$box" 2>&1; echo "status $?")" "is used by job $id on n1; .*status 3" \
  "and the image can't be removed"
is "$(run --jobid="$id" --overlap --container-image="$box" cat /layer)" upper "from under the job"
xc scancel "$id"
no_holders() { [[ -z $(holders) ]]; }
ok "the job's end is the lease's" poll 15 no_holders
id=$(xc salloc --no-shell -n1 -w n1 2>&1 | sed -n 's/.*Granted job allocation //p')
run --jobid="$id" --overlap --container-image="$box" true
is "$(holders | wc -l)" 1 "a lease of a job whose slurmstepd is killed"
mc exec --user root --node 1 -- pkill -KILL -x slurmstepd
xc scancel "$id"
forgotten() { run -w n1 true; no_holders; }
ok "is gone after the next job" poll 30 forgotten || diag "$(mc exec --user root --node 1 -- ps -eo pid,ppid,user,args)"

# Who may not.
bobs() { xc --user bob srun --quiet --mpi=none -w n1 "$@" 2>&1; }
like "$(bobs --container-image="$box" true)" 'failed to import docker image: n1:5000/team/box:1: .*are there credentials' \
  "who has no password is told by the importer's sentence"
like "$(xc --user carol srun --account=speech --quiet --mpi=none -w n1 --container-image="$box" true 2>&1)" 'may not (bring|use) image docker://n1:5000/team/box:1' \
  "a tenant without such a pattern may not"
like "$(run -w n1 --container-image=n1:5000/other/box:1 true)" 'may not (bring|use) image docker://n1:5000/other/box:1' \
  "nor is another place in the registry meant"
is "$(run -w n1 -n 3 --container-image=n1:5000/team/none true | grep -c 'failed to import docker image: n1:5000/team/none: .*manifest')" 1 \
  "an image that is not there is told once for all tasks"

# What a registry gives that is broken.
make_layout forged --random 100000
push forged team/forged:1 >/dev/null 2>&1
layer=$(find "$CLUSTER/registry/data/docker/registry/v2/blobs/sha256" -name data -size +90k -newer "$CLUSTER/forged/index.json" | head -n 1)
printf forged | dd of="$layer" bs=1 seek=50000 conv=notrunc 2>/dev/null
like "$(run -w n1 --container-image=n1:5000/team/forged:1 true)" 'failed to import docker image: n1:5000/team/forged:1|damaged or forged' \
  "a blob that was forged ends the step"
is "$(find "$home/.cache/bellows/images/images" -mindepth 1 -maxdepth 1 | wc -l)" 1 "and nothing of the image is there"

# A registry that stalls.
make_layout stalling --random 3000000
"$MINICLUSTER" exec --dir "$CLUSTER" --user root --node 1 -- /usr/bin/python3 "$TAP_HOME/programs/stalling_registry.py" \
  "$CLUSTER/stalling" 5001 "$CLUSTER/stalling.log" &
disown
import() { xc --node 1 bellows-image import "$@" 127.0.0.1:5001/team/slow; }
poll 10 xc --node 1 python3 -c 'import socket; socket.create_connection(("127.0.0.1", 5001))' || bail "no stalling registry"
like "$(import --patience 2 2>&1; echo "status $?")" 'has sent nothing for 2 s.*status 4' "a registry that stalls is given up"
first=$(grep -c /blobs/ "$CLUSTER/stalling.log")
touch "$CLUSTER/stalling.log.go"
path=$(import 2>/dev/null)
is "$(cat "$path/layer")" upper "the next import ends well"
is "$(($(grep -c /blobs/ "$CLUSTER/stalling.log") - first))" 2 "having fetched only the configuration and what was missing"
like "$(xc --node 1 bellows-image import "127.0.0.1:5001/team/slow@sha256:$(printf %064d 0)" 2>&1; echo "status $?")" \
  'failed to import docker image: 127.0.0.1:5001/team/slow@sha256:0+: .*digest.*status [^0]' "a registry that answers a digest with another image is not believed"
like "$(xc --node 1 bellows-image list)" 'docker://127.0.0.1:5001/team/slow:latest.*docker://n1:5000/team/box:1' "list shows the last used first"
ok "once no job uses it, it can be removed" poll 15 xc --node 1 bellows-image remove n1:5000/team/box:1
is "$(find "$home/.cache/bellows/images/images" -mindepth 1 -maxdepth 1 | wc -l)" 1 "removes"
for node in 1 2; do
  ok "nothing stays mounted on n$node" poll 10 nothing_mounted "$node"
done
# A container that outlives its job keeps its image, whatever its tag leads to by then.
spank_args "image_dirs=$images image_importer=$importer container_scope=global containers_dir=$CLUSTER/containers"
push box team/moving:1 >/dev/null 2>&1
run -w n1 --container-image=n1:5000/team/moving:1 --container-name=t --container-writable sh -c 'echo written >/written'
echo other >"$CLUSTER/top/layer"
make_layout other
push other team/moving:1 >/dev/null 2>&1
is "$(run -w n1 --container-image=n1:5000/team/moving:1 cat /layer)" other "a tag is moved to another image"
is "$(run -w n1 --container-name=t cat /layer /written | xargs)" "upper written" "a container that outlives its job keeps its own"
# Where the policy names tags, such a container goes by its tag, which must lead to the same image.
sed -i 's#docker://n1:5000/team/\*#docker://n1:5000/team/*:1#' "$CLUSTER/etc/bellows.yaml"
by_digest_refused() { run -w n1 --container-image="n1:5000/team/moving@sha256:$(printf %064d 0)" true | grep -q 'may not'; }
poll 20 by_digest_refused || bail "slurmctld does not take the policy"
like "$(run -w n1 --container-name=t true)" 'was made from docker://n1:5000/team/moving:1 as it was then' "the tag of which leads to another image now"
push box team/moving:1 >/dev/null 2>&1
is "$(run -w n1 --container-name=t cat /layer /written | xargs)" "upper written" "once it leads to its own, it is used by its tag"
done_testing
