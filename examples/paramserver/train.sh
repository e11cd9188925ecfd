#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Trains with a parameter server and LEARNERS learners on this machine: train.sh [OPTION OF train.py]...
set -u
here=$(dirname "$(realpath "$0")")
learners=${LEARNERS:-4}
dir=$(mktemp -d)
export BELLOWS_PS_SOCKET=$dir/socket
bellows-ps --socket="$BELLOWS_PS_SOCKET" --learners="$learners" &
server=$!
trap 'kill "$server"; rm -rf "$dir"' EXIT
until [ -S "$BELLOWS_PS_SOCKET" ]; do
  kill -0 "$server" || exit 1
  sleep 0.1
done
processes=()
for ((i = 0; i < learners; i++)); do
  "${PYTHON:-python3}" "$here/train.py" --part="$i/$learners" "$@" &
  processes+=($!)
done
status=0
for process in "${processes[@]}"; do wait "$process" || status=1; done
exit "$status"
