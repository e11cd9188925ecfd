// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <criterion/criterion.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/include/bellows.h"
#include "checkpoint/store/store.h"
#include "tests/unit/checkpoint/library_support.h"
#include "tests/unit/paramserver/ps_processes.h"

namespace bellows::ps_test {

/// The newest step that is committed; 0: there is none.
inline std::uint64_t newest_committed(const std::string& dir) {
  const auto steps = list_steps(dir);
  return steps && !steps->empty() ? steps->back() : 0;
}

/// What the newest checkpoint has: weights, and how many gradients of each learner's place.
struct Stored {
  std::uint64_t step = 0;
  std::vector<std::uint32_t> gradients;
  std::vector<float> weights;
};

inline std::optional<Stored> read_newest() {
  bellows_t* b = nullptr;
  // The agent of the server before may still be leaving.
  cr_assert(eventually([&] {
    bellows_finalize(b, 0);
    return bellows_init(nullptr, &b) == BELLOWS_OK;
  }));
  std::vector<std::uint64_t> gradients(256);
  std::vector<float> parts[3];
  const std::uint64_t places = gradients.size();
  cr_assert_eq(bellows_register(b, "gradients", BELLOWS_U64, 1, &places, BELLOWS_VALUE, 0, places,
                                gradients.data()),
               BELLOWS_OK);
  for (int i = 0; i < 3; ++i) {
    parts[i].resize(kTensors[i]);
    const std::string name = "weights/" + std::to_string(i);
    cr_assert_eq(bellows_register(b, name.c_str(), BELLOWS_F32, 1, &kTensors[i], BELLOWS_REPLICATED,
                                  0, kTensors[i], parts[i].data()),
                 BELLOWS_OK);
  }
  Stored stored;
  const int code = bellows_restore(b, &stored.step);
  cr_assert_geq(code, 0, "%s", bellows_error(b));
  bellows_finalize(b, 0);
  if (code == BELLOWS_NO_CHECKPOINT) return std::nullopt;
  stored.gradients.assign(gradients.begin(), gradients.end());
  for (const auto& part : parts)
    stored.weights.insert(stored.weights.end(), part.begin(), part.end());
  return stored;
}

/// That the server ends at this signal, and what it has saved then are so many gradients of learner
/// 0, each once.
inline void expect_saves(const checkpoint_test::Place& place, Server& server, int signal,
                         std::uint32_t pushed) {
  server.signal(signal);
  cr_expect_eq(server.wait_for_end(), 0);
  cr_assert(ps_test::eventually([&] { return !place.agent_lives(); }));
  const auto stored = read_newest();
  cr_assert(stored);
  cr_expect_eq(stored->step, pushed);
  cr_expect_eq(stored->gradients[0], pushed);
  cr_expect(is_sum(stored->weights, {pushed}));
}

}  // namespace bellows::ps_test
