// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/fd.h"
#include "common/result.h"
#include "modelstore/wire/model_wire.h"

namespace bellows {

using StoreClock = std::chrono::steady_clock;

ErrorKind kind_of(modelwire::Failure failure);

/// bellows-modeld could not be asked `what`; `failure` is an errno value.
Error store_unavailable(std::string_view what, int failure);
Error store_nonsense(const char* wrong);

/// "sha256" of a line in 64 hexadecimal digits.
std::string digest_text(const std::uint8_t (&digest)[modelwire::kDigestBytes]);

/// Milliseconds until then, at least one.
int ms_until(StoreClock::time_point deadline);

/// A connection to a socket of bellows-modeld. Waits for so long for one that is just being
/// restarted, whose socket is there already. unavailable: it is not there, or hangs.
Result<Fd> connect_to_modeld(const std::string& path, StoreClock::time_point deadline,
                             std::chrono::milliseconds restart);

/// Sends a message, with a descriptor unless `passed` is -1, and gives the bytes of the answer, of
/// `most` at most. unavailable: there is none until then.
Result<std::size_t> ask_packet(int socket, const void* request, std::size_t size, int passed,
                               void* answer, std::size_t most, StoreClock::time_point deadline);

}  // namespace bellows
