// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "common/result.h"
#include "modelstore/control/control_client.h"
#include "modelstore/control/store_view.h"

namespace bellows {

inline constexpr const char* kRunFolder = "/run/bellows-models";

/// The socket of the job in which this program runs, unless `run` names the daemon's own folder.
/// Empty: the daemon's own is meant.
std::string job_socket(const std::string& run);

/// `run` empty: kRunFolder.
std::string control_socket(const std::string& run);

/// A connection to the bellows-modeld of this node; all that is asked through it has so long.
/// unavailable: there is none, or it does not answer; denied: this user may not ask.
Result<ControlClient> connect_to_store(const std::string& run,
                                       std::chrono::seconds limit = std::chrono::seconds(10));

/// The model of this name. `tenant` empty: not_found if there is none, invalid if several tenants
/// have one.
Result<StoredModel> find_model(ControlClient& daemon, const std::string& tenant,
                               const std::string& name);

/// "absent", "loading", "memory"
const char* place_word(modelwire::Place place);
/// "absent", "loading, 35 %", "in memory"
std::string place_text(modelwire::Place place, std::uint64_t read_bytes, std::uint64_t bytes);
/// "in memory, pinned", "loading, 35 %", "absent; its last load failed"
std::string state_text(const StoredModel& model);
/// "job 17 of tenant a has it open twice"; empty: nobody has it.
std::string holders_text(ControlClient& daemon, const StoredModel& model);

/// Prints "bellows model WHAT: SENTENCE" on standard error; the exit status that goes with it.
int model_failed(const char* what, const Error& error);

}  // namespace bellows
