#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 180
# What "make install" leaves is enough to try Bellows: minicluster, the examples, manuals, Python.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"

build=${BELLOWS_BUILDDIR:-$(dirname "$(dirname "$TAP_HOME")")/build}
prefix=$(mktemp -d "${BELLOWS_TESTDIR:-/srv}/bellows-installed-XXXXXX")
trap 'rm -rf "$prefix"; tap_end' EXIT
chmod 755 "$prefix"
make -s -C "$build" install prefix="$prefix" >"$prefix/said" 2>&1 || bail "$(tail -n 5 "$prefix/said")"

for page in man1/minicluster.1 man7/bellows-operate.7 man8/spank_bellows.8; do
  ok "$page is there" test -s "$prefix/share/man/$page"
done
mkdir "$prefix/try"
python=$(dirname "$(find "$prefix/lib" -name py.typed)")
ok "the Python package finds its library" env PYTHONPATH="$(dirname "$python")" LD_LIBRARY_PATH="$prefix/lib" \
  /usr/bin/python3 -c 'import bellows; bellows.Checkpoint'
modules() { (cd "$1" && find bellows -name '*.py' ! -name _installed.py | sort); }
is "$(modules "$(dirname "$python")")" "$(modules "$(dirname "$(dirname "$TAP_HOME")")/python")" "and has all its modules"

# As examples/README.md says.
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
if type mpicxx >/dev/null 2>&1; then
  cd "$prefix/share/doc/bellows/examples/digits" || bail "there are no examples"
  # shellcheck disable=SC2046
  ok "the digits build from the installed sources" mpicxx -std=c++20 -O0 -DOMPI_SKIP_MPICXX -I ../.. \
    -o "$prefix/try/digits" $(printf '%s\n' *.cc | grep -v nccl) -I "$prefix/include" -L "$prefix/lib" -lbellows -lz
  cd / || exit 1
else
  skip "the digits build from the installed sources" "there is no mpicxx"
fi

# Nothing of the sources or the build is named from here on.
MINICLUSTER=$prefix/bin/minicluster
unset BELLOWS_BUILDDIR BELLOWS_SRCDIR
cluster_up --nodes=1 --gpus=2
like "$(<"$CLUSTER/etc/slurm.conf")" "PluginDir=[^ ]*:$prefix/lib/slurm-bellows" "the installed minicluster has the installed plugins"
is "$(xc sh -c 'command -v bellows')" "$prefix/bin/bellows" "and the installed program"
id=$(submit -- --framework=digits --gpus=2 --output=job.out --wrap 'exec bellows run'"$run_kind"' -- sh -c "echo rank \$SLURM_PROCID"')
ok "a job runs on it" poll 60 job_is "$id" COMPLETED
like "$(cat "$CLUSTER/shared/home/alice/job.out")" "rank 1" "with its ranks"
mc down >/dev/null
ok "uninstall takes all of it" make -s -C "$build" uninstall prefix="$prefix"
rm -r "$prefix/said" "$prefix/try"
is "$(find "$prefix" ! -type d)" "" "and leaves no file"
done_testing
