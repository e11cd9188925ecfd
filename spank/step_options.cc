// SPDX-License-Identifier: Apache-2.0
#include "spank/step_options.h"

#include <array>

#include "spank/container/spec_text.h"

namespace bellows::spank {

Result<container::Spec> take_step_options(spank_t spank) {
  // One more than is ever written, so that a longer text is seen to be one.
  std::array<char, container::kMostText + 2> text{};
  const spank_err_t code = spank_getenv(spank, kStepVariable, text.data(), text.size());
  if (code == ESPANK_ENV_NOEXIST) return container::Spec();
  // A forger can make several entries of one name.
  std::array<char, 1> any{};
  for (int round = 0; round < 64; ++round) {
    spank_unsetenv(spank, kStepVariable);
    if (spank_getenv(spank, kStepVariable, any.data(), any.size()) == ESPANK_ENV_NOEXIST) break;
  }
  if (code != ESPANK_SUCCESS)
    return Error{ErrorKind::invalid, "the step's --container options are too long"};
  text.back() = '\0';
  return container::parse_spec(text.data());
}

}  // namespace bellows::spank
