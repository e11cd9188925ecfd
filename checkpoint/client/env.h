// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "checkpoint/include/bellows.h"
#include "checkpoint/wire/wire.h"

namespace bellows::client {

inline constexpr std::size_t kErrorBytes = 1024;

/// The last failed call's sentence; cuts what is too long.
struct ErrorText {
  char text[kErrorBytes] = "";
  /// The step of a save in flight that it is about; wire::kNoStep: it is about the call itself.
  std::uint64_t step = wire::kNoStep;
  void clear() {
    text[0] = 0;
    step = wire::kNoStep;
  }
  /// Returns `code`, so that callers can `return error.set(code, ...)`.
  int set(int code, const char* format, ...) __attribute__((format(printf, 3, 4)));
};

/// Where this process stands, from the configuration and the environment.
struct Place {
  std::int32_t rank = 0;
  std::int32_t world = 1;
  std::int32_t keep = 3;
  std::uint64_t keep_every = 0;
  bool in_job = false;
  char dir[4096] = "";    ///< as given; made absolute by the agent's start. Empty in a job.
  char socket[108] = "";  ///< in a job: $BELLOWS_SOCKET
  /// In a job: $BELLOWS_ATTEMPT, by which an agent knows a rank that an earlier attempt left.
  char attempt[129] = "";
};

/// BELLOWS_OK or BELLOWS_ERR_INVALID.
int find_place(const bellows_config& config, Place* place, ErrorText* error);

/// The batch that was ordered, else `own`, held to the job's range. BELLOWS_OK or
/// BELLOWS_ERR_INVALID.
int find_batch(std::uint64_t own, std::uint64_t* batch, ErrorText* error);

}  // namespace bellows::client
