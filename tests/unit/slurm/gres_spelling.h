// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "slurm/gres.h"

/// Tables of cases spell a GRES as Slurm 22.05 does, "gres:gpu:2", whatever Slurm this is.
namespace bellows {

inline std::string respelled(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

/// What the table says, for this Slurm.
inline std::string for_this_slurm(std::string text) {
  return respelled(std::move(text), "gres:", BELLOWS_GRES);
}
/// What came out, for the table.
inline std::string for_table(std::string text) {
  return respelled(std::move(text), BELLOWS_GRES, "gres:");
}

}  // namespace bellows
