// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/unit/support/scratch_dir.h"

namespace bellows {

/// The driver of tests/gpu/fake_driver.c, with two GPUs. COMPILER compiles FAKE_DRIVER.
class FakeDriver {
 public:
  explicit FakeDriver(const std::string& options = "") {
    const std::string command = std::string(COMPILER) + " -shared -fPIC -DGPUS=2 " + options +
                                " -o " + library() + " " FAKE_DRIVER;
    cr_assert_eq(std::system(command.c_str()), 0);
  }

  std::string library() const { return directory() + "/libcuda.so.1"; }
  /// What is wrong with the driver for a program from now on.
  void set_faults_of(const std::string& program, const std::string& lines) const {
    std::ofstream(directory() + "/" + program + ".faults") << lines;
  }
  /// And for this program.
  void set_own_faults(const std::string& lines) const {
    set_faults_of(program_invocation_short_name, lines);
  }
  /// As a program's first call of CUDA does.
  void load() const { (void)handle(); }
  /// One of its functions, for this program.
  template <typename Function>
  Function* function(const char* name) const {
    void* const found = dlsym(handle(), name);
    cr_assert(found, "%s", name);
    return reinterpret_cast<Function*>(found);
  }

 protected:
  const std::string& directory() const { return scratch_.path(); }

 private:
  void* handle() const {
    void* const handle = dlopen(library().c_str(), RTLD_NOW | RTLD_GLOBAL);
    cr_assert(handle, "%s", dlerror());
    return handle;
  }

  ScratchDir scratch_;
};

}  // namespace bellows
