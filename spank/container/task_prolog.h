// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

/// Slurm runs TaskProlog, a script of the host, where the task is: in a container it is not to be
/// found. So it is run on the host, before the container is entered, in the way that Slurm would.
namespace bellows::container {

/// One line of what a TaskProlog says to Slurm. A value.
struct PrologLine {
  enum class Kind { set, unset, print };
  Kind kind;
  std::string name;   ///< of a variable
  std::string value;  ///< of a variable, or what to print

  bool operator==(const PrologLine&) const = default;
};

/// The lines "export NAME=VALUE", "unset NAME" and "print TEXT"; others mean nothing.
std::vector<PrologLine> parse_prolog(std::string_view text);

struct PrologRun {
  std::string path;                      ///< empty: there is none
  std::vector<std::string> environment;  ///< NAME=VALUE
  std::uint32_t seconds = 30;            ///< afterwards it is killed, with what it started
};

/// What the script says. `prepare` runs in its process before it. Its own errors go to standard
/// error. unavailable: it failed, or took too long.
Result<std::string> run_prolog(const PrologRun& run, const std::function<Status()>& prepare);

}  // namespace bellows::container
