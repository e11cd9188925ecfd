#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 480
# The Python package, with the agent of this build; what needs numpy or PyTorch is skipped without it.
# python.t PATTERN runs the files of that name only.
top=${BELLOWS_SRCDIR:-$(cd "$(dirname "$0")/../../.." && pwd)}
build=${BELLOWS_BUILDDIR:-$top/build}
export BELLOWS_LIBRARY=$build/checkpoint/.libs/libbellows.so.0
export BELLOWS_AGENT=$build/launcher/bellows
export BELLOWS_MODEL_LIBRARY=$build/modelstore/.libs/libbellows_model.so.0 BELLOWS_BUILDDIR=$build
export BELLOWS_PS_LIBRARY=$build/paramserver/.libs/libbellows_ps.so.0
export PYTHONPATH=$top/python PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
unset BELLOWS_PS_SOCKET BELLOWS_MODEL_SOCKET BELLOWS_MODELS BELLOWS_MODELS_MAP BELLOWS_SOCKET BELLOWS_CHECKPOINT_DIR BELLOWS_RANK BELLOWS_WORLD_SIZE
cd "$top/tests/unit/python" || exit 1
# Debian's own: another python3 earlier in PATH lacks its packages.
exec "${PYTHON:-/usr/bin/python3}" tap.py "$@"
