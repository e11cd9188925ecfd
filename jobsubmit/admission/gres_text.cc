// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/admission/gres_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "common/text.h"
#include "slurm/gres.h"

namespace bellows {
namespace {

Error unclear(std::string text) { return Error{ErrorKind::invalid, std::move(text)}; }

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// It goes into messages and back into the job, so no byte of it may mean anything there. Where a
/// count could stand, Slurm takes a minus as its sign: -18446744073709551612 is 4.
bool is_type(std::string_view type) {
  return !type.starts_with('-') && std::all_of(type.begin(), type.end(), [](char c) {
    return is_alphanumeric(c) || std::string_view("_.-").find(c) != std::string_view::npos;
  });
}

/// Slurm's suffixes. Nothing: none of them.
std::optional<std::uint64_t> multiplier(const std::string& suffix) {
  if (suffix.empty()) return 1;
  const auto power = std::string_view("kmgtp").find(suffix[0]);
  const std::string rest = suffix.substr(1);
  if (power == std::string_view::npos || !(rest.empty() || rest == "ib" || rest == "b"))
    return std::nullopt;
  std::uint64_t product = 1;
  for (std::size_t i = 0; i <= power; ++i) product *= rest == "b" ? 1000 : 1024;
  return product;
}

/// Nothing: Slurm takes it for a type. More than 64 bits hold are as many as they hold; in Slurm
/// they become fewer. A suffix alone is a count of 0.
std::optional<std::uint64_t> count_of(std::string_view text) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  const auto digits = std::find_if_not(text.begin(), text.end(), is_digit) - text.begin();
  const auto factor = multiplier(to_lower(text.substr(digits)));
  if (!factor) return std::nullopt;
  if (digits == 0) return 0;
  const auto number = parse_uint(text.substr(0, digits));
  if (!number || *number > kMost / *factor) return kMost;
  return *number * *factor;
}

}  // namespace

Result<GresItem> parse_gres_item(std::string_view text) {
  GresItem item;
  item.spelled = std::string(text);
  if (text.starts_with("gres:") || text.starts_with("gres/")) text.remove_prefix(5);
  // Slurm looks for it anywhere in the text, and counts what follows.
  if (text.find(BELLOWS_GRES_MARK) != std::string_view::npos)
    return unclear(fmt::format("\"{}\" has \"" BELLOWS_GRES "\" in the middle; write " BELLOWS_GRES
                               "gpu:N",
                               item.spelled.substr(0, 64)));
  std::string flat(text);
  std::replace(flat.begin(), flat.end(), '=', ':');
  const auto pieces = split(flat, ':');
  if (pieces.size() > 3 || std::find(pieces.begin(), pieces.end(), "") != pieces.end())
    return unclear(
        fmt::format("\"{}\" is not a GPU request such as gpu:2 or gpu:a100:2", text.substr(0, 64)));
  item.name = to_lower(pieces[0]);
  if (pieces.size() == 1) return item;
  const auto count = count_of(pieces.back());
  if (count) item.count = *count;
  if (pieces.size() == 3 || !count) item.type = std::string(pieces[1]);
  if (!is_type(item.type))
    return unclear(
        fmt::format("\"{}\" names no GPU type that Slurm could have", text.substr(0, 64)));
  if (pieces.size() == 3 && !count)
    return unclear(fmt::format("\"{}\" has no whole number of GPUs", text.substr(0, 64)));
  return item;
}

}  // namespace bellows
