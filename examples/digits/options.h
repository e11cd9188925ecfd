// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace digits {

struct Options {
  std::string data;
  int epochs = 30;
  int hidden = 256;
  int batch = 64;
  int chunk = 8;
  float rate = 0.05f;
  float momentum = 0.9f;
  std::uint64_t seed = 1;
  int checkpoint_every = 20;   ///< steps; 0 = only at the end of each epoch
  std::string checkpoint_dir;  ///< empty = where Bellows says
  std::string ledger_dir;      ///< empty = no ledger
  std::string weights_out;     ///< empty = none
};

/// What main has to do after the command line was read.
enum class Next { run, exit_ok, exit_usage };

/// Reads the command line. Help goes to standard output and errors to standard error, when `speak`.
Next parse_options(int argc, char** argv, bool speak, Options& options);

}  // namespace digits
