// SPDX-License-Identifier: Apache-2.0
#include "slurm/gres.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <string>

#include "common/text.h"

namespace bellows {

std::string spell_gpus(std::uint64_t count, std::string_view type) {
  return type.empty() ? fmt::format(BELLOWS_GRES "gpu:{}", count)
                      : fmt::format(BELLOWS_GRES "gpu:{}:{}", type, count);
}

std::uint32_t gpus_in_gres(std::string_view text) {
  std::uint64_t typed = 0;
  std::optional<std::uint64_t> untyped;
  // Commas inside "(IDX:0,2-3)" do not separate entries.
  std::string plain;
  int depth = 0;
  for (char c : text) {
    if (c == '(') ++depth;
    if (depth == 0) plain += c;
    if (c == ')' && depth > 0) --depth;
  }
  for (std::string_view entry : split(plain, ',')) {
    for (std::string_view prefix : {"gres:", "gres/"})
      if (entry.starts_with(prefix)) entry.remove_prefix(prefix.size());
    if (!entry.starts_with("gpu")) continue;
    entry.remove_prefix(3);
    if (entry.empty()) {
      typed += 1;
      continue;
    }
    if (entry[0] != ':' && entry[0] != '=') continue;  // for example gpu_mem
    auto cut = entry.find_last_of(":=");
    auto count = parse_uint(entry.substr(cut + 1));
    if (!count || *count > UINT32_MAX) continue;
    if (cut == 0)
      untyped = untyped.value_or(0) + *count;
    else
      typed += *count;
  }
  bool repeats_total = text.find('=') != std::string_view::npos && untyped;
  return static_cast<std::uint32_t>(repeats_total ? *untyped : typed + untyped.value_or(0));
}

std::uint32_t cpus_for(std::uint32_t gpus, std::uint32_t cpus_per_task,
                       std::string_view cpus_per_tres) {
  const std::uint64_t each = std::max(cpus_per_task, gpus_in_gres(cpus_per_tres));
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(gpus * each, UINT32_MAX - 2));
}

}  // namespace bellows
