// SPDX-License-Identifier: Apache-2.0
#include "common/launch_kind.h"

namespace bellows {

std::string_view launch_kind_name(LaunchKind kind) {
  switch (kind) {
    case LaunchKind::mpi:
      return "mpi";
    case LaunchKind::nccl:
      return "nccl";
    case LaunchKind::torch:
      return "torch";
    case LaunchKind::ps:
      return "ps";
    case LaunchKind::plain:
      break;
  }
  return "plain";
}

std::optional<LaunchKind> parse_launch_kind(std::string_view name) {
  for (LaunchKind kind : kLaunchKinds)
    if (launch_kind_name(kind) == name) return kind;
  return std::nullopt;
}

}  // namespace bellows
