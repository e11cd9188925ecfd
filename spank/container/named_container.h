// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/container/spec.h"
#include "common/result.h"

/// Containers with a name, which later steps of the job use again. As in pyxis, what stays is the
/// file tree: a step that comes when no other runs in the container has its own mounts and its own
/// choice between reading and writing, and one that comes to others has theirs.
namespace bellows::container {

/// How a container was made. A value.
struct NamedState {
  std::uint64_t mounts = 0;  ///< a digest of the mounts, the home directory included
  bool mounts_home = false;
  bool writable = false;
  bool layered = false;   ///< what was written to it lies in a layer of its own
  bool imported = false;  ///< `image` is where one out of a registry was imported to
  std::string image;

  bool operator==(const NamedState&) const = default;
};

/// As this step would make it; without the layer.
NamedState state_for(const Spec& spec, const Site& site, const std::string& home);

/// For a note, and back. An error (denied) for any other text.
std::string state_text(const NamedState& state);
Result<NamedState> parse_state(std::string_view text);

/// Those of the step's options that only who makes a container can obey, with commas; empty: none.
std::string made_by_others(const Spec& spec);

enum class Entrance { join, make, remake };

struct EntranceChoice {
  Entrance entrance = Entrance::join;
  std::string remark;  ///< for the user; empty: none
};

/// What a step's first task does about the container of its name: `found`, as it is; null: there is
/// none. `vacant`: no other step runs in it. denied: the mode of --container-name says otherwise.
Result<EntranceChoice> decide(const Spec& spec, const NamedState& wanted, const NamedState* found,
                              bool vacant);

}  // namespace bellows::container
