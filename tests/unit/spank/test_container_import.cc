// SPDX-License-Identifier: Apache-2.0
// What a step makes of what the importer of images does.
#include <criterion/criterion.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/fd.h"
#include "spank/container/image_import.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace bellows::container;

TestSuite(image_import, .timeout = 30);

namespace {

/// What run_import makes of an importer, a script; "! " and the sentence for an error.
std::string made_of(const std::string& script, bool tells = true, std::uint64_t budget_mib = 0) {
  const ScratchDir scratch;
  ImageImport import;
  import.program = scratch.path() + "/importer";
  import.image = "docker://h.org/x:1";
  import.cache = budget_mib > 0 ? "" : "/cache/7";
  import.budget_mib = budget_mib;
  import.job = 7;
  import.tells = tells;
  import.environment = {"PATH=/usr/bin:/bin", "HOME=/home/ann"};
  cr_assert(replace_file(import.program, "#!/bin/sh\n" + script + "\n", 0755).ok());
  const auto path = run_import(import, JobCgroup());
  return path ? *path : "! " + path.error().text;
}

void is(const std::string& found, const std::string& wanted) {
  cr_expect(found == wanted, "\"%s\" instead of \"%s\"", found.c_str(), wanted.c_str());
}

}  // namespace

Test(image_import, says_its_path) {
  is(made_of("echo \"/$1$2$3$HOME\""), "/import--cache=/cache/7docker://h.org/x:1/home/ann");
  is(made_of("echo \"/$2\"", true, 50 << 10), "/--budget=51200M");
  is(made_of("echo fetching >&2; echo unpacking >&2; echo /path"), "/path");
}

Test(image_import, fails_with_its_sentence) {
  is(made_of("echo 'bellows image: waiting' >&2; echo 'bellows image: no such image' >&2; exit 4"),
     "! no such image");
  is(made_of("printf 'a\\033[2Jb' >&2; exit 1"), "! a?[2Jb");
  is(made_of("echo 'bellows image: no such image' >&2; exit 4", false),
     "! the image could not be imported; the step's first task on this node says why");
  is(made_of("exit 3"), "! bellows-image exited with status 3");
  is(made_of("kill -9 $$"), "! bellows-image was killed by signal 9 (Killed)");
  is(made_of("echo relative"), "! bellows-image says no path");
  is(made_of(":"), "! bellows-image says no path");
}

Test(image_import, says_more_than_anyone_reads) {
  const std::string much = made_of("head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 1");
  cr_expect(much.starts_with("! xxx") && much.size() < 2000);
  is(made_of("head -c 1000000 /dev/zero | tr '\\0' x; exit 0"), "! bellows-image says no path");
}

Test(image_import, environment_of_the_user) {
  const auto found = import_environment(
      {"LD_PRELOAD=/x.so", "PATH=/evil", "HOME=/evil", "https_proxy=p", "NO_PROXY=n",
       "XDG_CACHE_HOME=/c", "ENROOT_CONFIG_PATH=/e", "SLURM_JOB_ID=1", "BELLOWS_CONTRACT=x"},
      "ann", "/home/ann");
  const std::vector<std::string> wanted = {"PATH=/usr/local/bin:/usr/bin:/bin",
                                           "USER=ann",
                                           "HOME=/home/ann",
                                           "https_proxy=p",
                                           "NO_PROXY=n",
                                           "XDG_CACHE_HOME=/c",
                                           "ENROOT_CONFIG_PATH=/e"};
  cr_expect(found == wanted);
}
