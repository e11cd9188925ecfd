// SPDX-License-Identifier: Apache-2.0
#include "launcher/record/model_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/text.h"
#include "launcher/base/size_text.h"

namespace bellows {

std::vector<NodeModels> parse_model_progress(std::string_view text,
                                             const std::set<std::string>& nodes) {
  std::vector<NodeModels> found;
  std::set<std::string> seen;
  for (const std::string_view line : split(text, '\n')) {
    const auto words = split(line, ' ');
    if (words.size() != 3) continue;
    const auto read = parse_uint(words[1]), bytes = parse_uint(words[2]);
    std::string node(words[0]);
    const bool fits = read && bytes && (*bytes == 0 || *read <= *bytes);
    if (!fits || nodes.count(node) == 0 || !seen.insert(node).second) continue;
    found.push_back({std::move(node), *read, *bytes});
  }
  std::sort(found.begin(), found.end(),
            [](const NodeModels& a, const NodeModels& b) { return a.node < b.node; });
  return found;
}

std::string progress_text(std::uint64_t read_bytes, std::uint64_t bytes) {
  if (bytes == 0) return read_bytes == 0 ? "nothing yet" : size_text(read_bytes);
  return fmt::format("{} of {}", size_text(read_bytes), size_text(bytes));
}

}  // namespace bellows
