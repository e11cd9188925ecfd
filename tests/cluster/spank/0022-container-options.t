#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# The --container options on their way from the prompt into the contract. What they do on a node is
# not looked at here.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"

work=$(mktemp -d)
cat >"$work/bellows.yaml" <<'YAML'
version: 1
frameworks:
  digits: {versions: ["1.0"]}
  boxed: {image: /images/boxed.sqsh, mounts: ["/data:/data:ro"], env: {MODE: fast}}
tenants:
  vision: {gpus: {max: 4, start: 1}, images: ["/own/*", "*/home/alice/*"]}
  speech: {gpus: {max: 4}}
default_tenant: vision
YAML
cluster_up --nodes=1 --gpus=4 --bellows-conf "$work/bellows.yaml"
rm -rf -- "$work"
home=$CLUSTER/shared/home/alice
printf '#!/bin/sh\ntrue\n' >"$home/true.sh"
printf '#!/bin/sh\n#SBATCH --container-image=/own/script.sqsh\n#SBATCH --container-mounts=/a:/b\n' \
  >"$home/lines.sh"
touch "$home/here.sqsh"
chmod 755 "$home"/*.sh

# What a held job's contract says after gpus=, images= left out: contract COMMAND...
contract() {
  local id
  id=$("$@" 2>"$CLUSTER/error") || {
    cat "$CLUSTER/error"
    return
  }
  xc --user root scontrol --oneliner show job "$id" |
    sed -n 's/.*AdminComment=bellows.1 tenant=[a-z]* \(.*\) StdErr=.*/\1/p' |
    sed 's/ images=[^ ]*//; s/ *$//'
  xc scancel "$id"
}
held() { contract xc sbatch --hold --parsable "$@"; }
with() { # VARIABLE=VALUE... -- OPTION-OF-SBATCH...
  local variables=()
  while [[ $1 != -- ]]; do
    variables+=("$1")
    shift
  done
  shift
  contract xc env "${variables[@]}" sbatch --hold --parsable "$@"
}

for command in sbatch salloc srun; do
  help=$(xc "$command" --help)
  for option in --container-image=PATH '--container-mounts=SRC[[]:DST[[]:FLAGS' --no-container-mount-home \
    --container-tmp=SIZE; do
    like "$help" "$option" "$command --help shows $option"
  done
  for wrong in --container-image=docker://Alpine --container-image=alpine:3:4 --container-mounts=a:b \
    --container-mounts=/a:/b:suid --container-unshare=pid --container-tmp=8 --container-save=./ \
    --container-name=../x --container-image=; do
    status=0
    output=$(xc "$command" "$wrong" "$home/true.sh" 2>&1) || status=$?
    like "$status:$output" "^[1-9][0-9]*:$command: error: bellows: --(no-)?container-[a-z-]+: [^"$'\n'"]+$" \
      "$command refuses $wrong with a sentence, which is all that it says"
  done
  status=0
  output=$(xc "$command" --container-writable --container-readonly "$home/true.sh" 2>&1) || status=$?
  like "$status:$output" '^[1-9].*--container-readonly: its opposite --container-writable is given too' \
    "$command refuses contraries"
  status=0
  output=$(xc env PYXIS_CONTAINER_MOUNTS=x "$command" "$home/true.sh" 2>&1) || status=$?
  like "$status:$output" '^[1-9].*bellows: PYXIS_CONTAINER_MOUNTS: mount "x"' \
    "$command refuses a wrong variable"
done
like "$(xc salloc --container-image=/own/a.sqsh --container-save=saved.sqsh true 2>&1)" \
  '^salloc: error: bellows: --container-save: .*; give it to srun$' "salloc has nothing to save"
is "$(xc squeue --noheader --states=all | wc -l)" 0 "nothing wrong was submitted"

is "$(held --container-image=/own/a.sqsh true.sh)" "gpus=0 image=/own/a.sqsh script=image" \
  "a container needs no GPU"
is "$(held --container-image=here.sqsh true.sh)" "gpus=0 image=$home/here.sqsh script=image" \
  "a file is looked up where sbatch runs"
is "$(held --gpus=2 --container-image=./none.sqsh true.sh)" "gpus=2 image=$home/none.sqsh script=image" \
  "a path is made absolute there, and GPUs stay as they are"
is "$(held --container-mounts=/a:/b --container-mounts=/c:/d:ro --container-writable true.sh)" \
  "gpus=0 container=mount:/a:/b,mount:/c:/d:ro,writable" "options add up"
is "$(held lines.sh)" "gpus=0 image=/own/script.sqsh script=image container=mount:/a:/b" "lines of the script"
is "$(with PYXIS_CONTAINER_IMAGE=/own/p BELLOWS_CONTAINER_IMAGE=/own/b \
  PYXIS_CONTAINER_WRITABLE=1 PYXIS_CONTAINER_MOUNTS=/x:/y -- --container-mounts=/a:/b true.sh)" \
  "gpus=0 image=/own/b script=image container=mount:/a:/b,writable" "variables, and what wins"
is "$(with PYXIS_CONTAINER_READONLY=1 -- --container-writable --export=NONE true.sh)" \
  "gpus=0 container=writable" "the command line wins over a contrary variable"
is "$(held --framework=boxed --container-workdir=/w true.sh)" \
  "framework=boxed gpus=1 image=/images/boxed.sqsh mounts=/data:/data:ro env=MODE container=workdir:/w" \
  "a framework's image needs no leave"
like "$(held --container-image=/etc/a.sqsh true.sh)" \
  'tenant vision may not bring image /etc/a.sqsh; it may bring /own/' "other images are refused"
like "$(held --account=speech --container-image=/own/a.sqsh true.sh)" \
  'tenant speech may not bring image /own/a.sqsh; it may bring none' "and all, of a tenant without"

# A step of srun hands its options to slurmstepd, also without an environment; nested submissions
# have only their own.
printf '%s\n' '#!/bin/bash' \
  'sbatch --hold --parsable true.sh' \
  'sbatch --hold --parsable --container-workdir=/nested true.sh' \
  'env | grep -c "SPANK_OPTION_bellows_container\|SLURM_BELLOWS"' 'true' >"$home/nested.sh"
chmod 755 "$home/nested.sh"
job=$(xc sbatch --wait --parsable --output=nested.out --container-mounts=/a:/b nested.sh)
mapfile -t nested <"$home/nested.out"
is "$(job_field "$job" JobState)" COMPLETED "a job with container options and no image runs"
is "$(job_field "${nested[0]}" AdminComment)" "" "a nested job is a plain one"
like "$(xc --user root scontrol -o show job "${nested[1]}")" 'container=workdir:/nested ' \
  "or has only its own options"
is "${nested[2]}" 0 "and the batch script sees nothing of the options"
update=$(xc --user alice scontrol update "jobid=${nested[1]}" "tresperjob=${gres}gpu:1" 2>&1)
like "$update" 'error|denied|policy' "an update gives it no GPU"
is "$(job_field "${nested[1]}" TresPerJob)" "" "as Slurm says too"

printf '%s\n' '#!/bin/bash' \
  'srun --export=NONE --container-image=/etc/a.sqsh true' \
  'SLURM_BELLOWS_CONTAINER=image:/etc/b.sqsh srun env | grep -c SLURM_BELLOWS' \
  'PYXIS_CONTAINER_IMAGE=/etc/c.sqsh srun true' 'true' >"$home/steps.sh"
chmod 755 "$home/steps.sh"
xc sbatch --wait --parsable --output=steps.out --container-verbose steps.sh >/dev/null
said=$(<"$home/steps.out")
for image in /etc/a.sqsh /etc/c.sqsh; do
  like "$said" "this job may not use image $image; its contract allows /own/[*], [*]/home/alice/[*]" \
    "a step is refused $image by the contract"
done
unlike "$said" /etc/b.sqsh "srun does not pass on what it finds in its environment"
xc sbatch --wait --parsable --output=steps.out steps.sh >/dev/null
like "$(<"$home/steps.out")" 'this job may not use image /etc/a.sqsh; its contract allows /own/' \
  "and of a plain job, by its tenant's images"
xc sbatch --wait --parsable --account=speech --output=steps.out steps.sh >/dev/null
like "$(<"$home/steps.out")" 'submit it with --container-image or --framework' \
  "and has no container where its tenant may bring no images"

# Where slurmctld does not have the plugin.
sed -i '/^JobSubmitPlugins=/d' "$CLUSTER/etc/slurm.conf"
xc --user root scontrol reconfigure
printf '#!/bin/sh\necho ran\n' >"$home/ran.sh"
chmod 755 "$home/ran.sh"
# shellcheck disable=SC2317
unpromised() {
  job=$(xc sbatch --parsable --wait --output=ran.out --container-image=/own/a.sqsh ran.sh) ||
    [[ -z $(job_field "$job" AdminComment) ]]
}
ok "slurmctld continues without the plugin" poll 20 unpromised
unpromised
like "$(<"$home/ran.out")" 'bellows: container: [^:]*: the job was submitted with --container options, but slurmctld did not grant' \
  "a batch script does not run on the host in place of its container"
unlike "$(<"$home/ran.out")" ran$ "not at all"
xc sbatch --wait --output=ran.out ran.sh >/dev/null
is "$(<"$home/ran.out")" ran "and a plain one does"
like "$(xc srun --container-image=/own/a.sqsh echo ran 2>&1)" 'a step of this job cannot have --container options' \
  "as a step is refused"
done_testing
