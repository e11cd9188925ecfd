// SPDX-License-Identifier: Apache-2.0
/// What the nodes of a job are said to have printed: what is taken is of a node of the job, each at
/// most once, and has not read more than there is.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

#include "launcher/record/model_progress.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bellows;
  const std::set<std::string> nodes = {"n1", "n2"};
  std::set<std::string> left = nodes;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const NodeModels& found : parse_model_progress(text, nodes)) {
    require(left.erase(found.node) == 1);
    require(found.bytes == 0 || found.read_bytes <= found.bytes);
    require(!progress_text(found.read_bytes, found.bytes).empty());
  }
  return 0;
}
