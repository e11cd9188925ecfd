// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "modelstore/loader/loader_wire.h"

/// What a loader and bellows-model-gpu say to bellows-modeld.
namespace bellows {

/// Waits for the daemon's next message. Errors are those of receive_message.
Status await_message(LoaderMessage* message, plain::Handle* passed);

/// Once the daemon has room for it: what it has not read yet of the progress must not keep it from
/// what the load cannot go on without.
Status tell(const LoaderMessage& message, int passed = -1);

/// If the daemon has room for it.
void say_progress(std::uint64_t bytes);
void say_failed(const Error& error);

}  // namespace bellows
