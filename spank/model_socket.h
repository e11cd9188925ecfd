// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/contract.h"
#include "common/result.h"
#include "spank/options.h"

namespace bellows::spank {

/// The socket through which a job's processes on this node borrow models, RUN_DIR/JOB/models.sock.
/// Root binds it, only the job's user may connect, and bellows-modeld takes its clients. A value;
/// to be used as root.
class ModelSocket {
 public:
  ModelSocket(const Settings& settings, std::uint32_t job) : settings_(settings), job_(job) {}

  std::string path() const;
  /// Has bellows-modeld serve the socket and begin to load the contract's models, unless a step
  /// before has. Takes a second at most, also where another step has its lock; after a step that
  /// has waited in vain, others do not wait for a while. Needs a Lease of the job's. unavailable:
  /// there is no socket then. not_found: the job can't have one of the models, and may have the
  /// others.
  Status lend(uid_t uid, const Contract& contract) const;
  /// Tells bellows-modeld of GPUs that the job has, by their PCI addresses, and has it put the
  /// contract's models there. Takes a second at most. Errors as of lend.
  Status lend_on_gpus(const std::vector<std::string>& gpus, const Contract& contract) const;
  /// After the job's last process on the node. The socket is gone afterwards in any case; the error
  /// is that of telling bellows-modeld.
  Status end() const;

 private:
  Status serve(uid_t uid, const Contract& contract,
               std::chrono::steady_clock::time_point deadline) const;
  Status put_on_gpus(const std::vector<std::string>& gpus, const Contract& contract,
                     std::chrono::steady_clock::time_point deadline) const;
  /// Has others not wait when this one has waited in vain.
  Status noted(std::chrono::steady_clock::time_point begun, const Status& status) const;
  std::string waited_path() const;

  const Settings& settings_;
  std::uint32_t job_;
};

/// Where programs find bellows-modeld: the socket on the host; nothing for a job without models.
std::string model_socket_of(const Contract& contract, const std::string& user_dir);

}  // namespace bellows::spank
