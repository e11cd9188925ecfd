#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 900
# The protocol of the parameter server holds in every state of its models, and each deliberate fault in it is found.
# The long form explores larger ones.
top=${BELLOWS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
# shellcheck source=tests/lib/static.sh
. "$top/tests/lib/static.sh"
model=$top/paramserver/model

# Of a run that is as it should be only the line of its size is printed, as a comment.
# holds NAME ARGUMENTS
holds() {
  local name=$1 said status
  shift
  said=$("$model/check" "$@" 2>&1)
  status=$?
  { [ "$status" -eq 0 ] || printf '%s\n' "$said"; } | point "$name"
  [ "$status" -ne 0 ] || printf '# %s\n' "$said"
}

# breaks FAULT MODEL ARGUMENTS
breaks() {
  local fault=$1 said status
  shift
  said=$("$model/check" -q "$@" "-DFAULT_$fault" 2>&1)
  status=$?
  { [ "$status" -eq 1 ] || printf 'status %d: %s\n' "$status" "$said"; } | point "$fault has a counterexample in $*"
}

holds "pushes of two learners to two shards" paramserver -DPUSH -DAT_REST -DLEARNERS=2 -DSHARDS=2
holds "pushes of one among any number, to three shards" paramserver -DPUSH -DOTHERS -DLEARNERS=1 -DSHARDS=3
holds "pushes among hostile learners" paramserver -DPUSH -DOTHERS -DHOSTILE -DLEARNERS=1 -DSHARDS=2
holds "sequences over their whole range" paramserver -DPUSH -DWHOLE_RANGE -DLEARNERS=2 -DSHARDS=1
holds "pulls of two hostile learners" paramserver -DPULL -DHOSTILE -DLEARNERS=2 -DSHARDS=1
holds "pulls of one among any number" paramserver -DPULL -DOTHERS -DHOSTILE -DLEARNERS=1 -DSHARDS=1
holds "pushes and pulls together" paramserver -DPUSH -DPULL -DOTHERS -DHOSTILE -DLEARNERS=1 -DSHARDS=1
holds "no push waits for who has stopped" paramserver -DLIVE -DPUSH -DOTHERS -DLEARNERS=1 -DSHARDS=2
holds "no push of two waits for who has stopped" paramserver -DLIVE -DPUSH -DLEARNERS=2 -DSHARDS=1
holds "no pull waits for who has stopped" paramserver -DLIVE -DPULL -DOTHERS -DLEARNERS=1 -DSHARDS=1
holds "a cut through two shards" cut -DLEARNERS=2 -DSHARDS=2 -DGRADIENTS=2
holds "who sleeps is woken" wake -DLEARNERS=2 -DWINDOW=2
holds "who sleeps is woken, in step" wake -DLEARNERS=2 -DWINDOW=1
if [ -n "${BELLOWS_LONG-}" ]; then
  large=(-c -m 4000)
  holds "pushes of two hostile learners" "${large[@]}" paramserver -DPUSH -DHOSTILE -DLEARNERS=2 -DSHARDS=1
  holds "pushes of two hostile learners to two shards" -m 4000 -d 10000000 paramserver -DPUSH -DONE_FINE -DHOSTILE \
    -DAT_REST -DLEARNERS=2 -DSHARDS=2
  holds "no push waits for hostile learners" "${large[@]}" paramserver -DLIVE -DPUSH -DHOSTILE -DOTHERS -DLEARNERS=1 \
    -DSHARDS=2
  holds "no pull of two waits for who has stopped" "${large[@]}" paramserver -DLIVE -DPULL -DLEARNERS=2 -DSHARDS=1
  holds "a longer way to a cut" "${large[@]}" cut -DLEARNERS=2 -DSHARDS=2 -DCRASHES=2
  three=(-d 20000000 paramserver -DPUSH -DONE_FINE -DLEARNERS=3 -DSHARDS=2)
  holds "pushes of three learners to two shards" -m 6000 "${three[@]}" -DAT_REST
  holds "three learners and two shards always make progress" -m 12000 "${three[@]}" -DCYCLES
  holds "pushes of three learners to one shard, all step by step" -m 6000 -d 20000000 paramserver -DPUSH -DAT_REST \
    -DLEARNERS=3 -DSHARDS=1
  pulls=(-m 4000 -d 12000000 paramserver -DPULL -DLEARNERS=3 -DSHARDS=1)
  holds "pulls of three hostile learners" "${pulls[@]}" -DHOSTILE
  holds "pulls of three learners always make progress" "${pulls[@]}" -DCYCLES
  holds "a cut through two shards of three learners" -m 6000 cut -DLEARNERS=3 -DSHARDS=2 -DGRADIENTS=2
  holds "who sleeps is woken, of three" wake -DLEARNERS=3 -DWINDOW=2
  holds "who sleeps is woken, of three in step" wake -DLEARNERS=3 -DWINDOW=1
fi

one=(-DOTHERS -DLEARNERS=1 -DSHARDS=1)
for fault in PUBLISH_RELAXED FLIP_FIRST INCARNATION REUSE WAIT_UNCHECKED DROP_EARLY; do
  breaks "$fault" paramserver -DPUSH "${one[@]}"
done
breaks FENCE_FORGOTTEN paramserver -DPUSH -DHOSTILE "${one[@]}"
breaks SERVER_WAITS paramserver -DLIVE -DPUSH "${one[@]}"
breaks SERVER_WAITS paramserver -DPUSH -DAT_REST -DLEARNERS=1 -DSHARDS=1
two=(-DONE_FINE -DAT_REST -DLEARNERS=2 -DSHARDS=2)
for fault in PUBLISH_RELAXED INCARNATION REUSE WAIT_UNCHECKED DROP_EARLY SERVER_WAITS; do
  breaks "$fault" paramserver -DPUSH "${two[@]}"
done
for fault in PIN_UNCHECKED PIN_RELAXED FLIP_RELAXED WEIGHTS_LATE FEW_BUFFERS; do
  breaks "$fault" paramserver -DPULL -DLEARNERS=1 -DSHARDS=1
done
breaks SERVER_WAITS paramserver -DLIVE -DPULL -DLEARNERS=1 -DSHARDS=1
breaks SERVER_WAITS paramserver -DCYCLES -DPULL -DLEARNERS=1 -DSHARDS=1
for fault in NOT_HELD TWO_STATES CUT_EARLY CUT_KEPT; do
  breaks "$fault" cut -DGRADIENTS=2
done
for fault in PUBLISH_UNFENCED FLIP_UNFENCED BELL_FORGETS CURRENT_UNCHECKED SLEEP_UNCHECKED START_SILENT; do
  breaks "$fault" wake -DLEARNERS=1 -DWINDOW=1
done

# A walk takes every step that the README names, and a seed always gives the same one.
walk=$("$model/trace" -c 30 1 6000 2>&1)
{
  steps() { sed 's/^server \(.*\)/server \1/; s/^\(learner\|shard\) [0-9]* \([a-z-]*\).*/\1 \2/; /^#/d' | sort -u; }
  diff <(sed -n 's/^| `\(\(learner\|shard\) N \([a-z-]*\)\|server [a-z]*\).*/\1/p' "$model/README.md" | sed 's/ N / /' | grep -v ' fence$' | sort -u) \
    <(steps <<< "$walk")
  [ "$walk" = "$("$model/trace" -c 30 1 6000)" ] || echo "two walks of one seed differ"
} | point "walks take every step, and the same ones for one seed"
{
  "$model/trace" 1 2>/dev/null
  [ $? -eq 2 ] || echo "trace takes a seed without a number of steps"
  "$model/check" -m 300 cut > /dev/null 2>&1
  [ $? -eq 2 ] || echo "check decides without the memory for it"
  "$model/check" -d 100 wake > /dev/null 2>&1
  [ $? -eq 2 ] || echo "check decides without the depth for it"
} | point "what was not explored is not called proven"
finish
