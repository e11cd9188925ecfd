// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/fd.h"
#include "common/result.h"
#include "modelstore/control/packet_question.h"
#include "modelstore/wire/control_lines.h"
#include "modelstore/wire/control_wire.h"
#include "modelstore/wire/gpu_lines.h"

namespace bellows {

/// A connection to bellows-modeld's own socket, for root and the daemon's user. All that is asked
/// through it has one deadline together. A resource.
///
/// Errors: unavailable when the daemon is not there, hangs or ended; else as the daemon says.
class ControlClient {
 public:
  using Clock = StoreClock;

  /// Waits for so long for a daemon that is just being restarted, whose socket is there already.
  static Result<ControlClient> connect(
      const std::string& path, Clock::time_point deadline,
      std::chrono::milliseconds restart = std::chrono::milliseconds(300));

  /// Has the daemon take clients of this user from `listener`, for this tenant, under this name.
  Status serve(const std::string& job, const std::string& tenant, uid_t uid, int listener);
  /// Ends what serve began. not_found: nothing of this name is served.
  Status end(const std::string& job);
  /// Begins to load what the tenant sees by this name, unless it is in memory. not_found: it sees
  /// no such model.
  Status prefetch(const std::string& tenant, const std::string& model);

  /// Has models on these GPUs of the job, too, by their PCI addresses. not_found: nothing of this
  /// name is served.
  Status add_gpus(const std::string& job, const std::vector<std::string>& gpus);
  /// Begins to put what the job sees by this name on all its GPUs. not_found: it sees no such
  /// model; unavailable: models are on no GPU of this node.
  Status prefetch_on_gpus(const std::string& job, const std::string& model);

  /// Gives the tenant a model of this name, which is read from a path with the rights of `uid`, or
  /// from a URL. `visible`: other tenants that see it, with "," between, or "*".
  Status add(const std::string& tenant, const std::string& model, const std::string& place,
             uid_t uid, const std::string& visible);
  /// Remove, pin, unpin or evict a model of the tenant's. not_found: it has none of this name;
  /// busy: it is in use.
  Status change(modelwire::ControlOp op, const std::string& tenant, const std::string& model);

  /// Has the digest of a model in memory computed anew. not_found: there is no such model; busy: it
  /// is not in memory, or was evicted meanwhile; corrupt: it had another digest, and nobody gets it
  /// any more.
  Status verify(const std::string& tenant, const std::string& model) {
    return change(modelwire::ControlOp::verify, tenant, model);
  }

  /// The model behind this one, by tenant and name; of "" and "" the first. Nothing: there is none.
  Result<std::optional<modelwire::ModelLine>> model_after(const std::string& tenant,
                                                          const std::string& model);
  /// A model of the tenant's. not_found: it has none of this name.
  Result<modelwire::ModelLine> model(const std::string& tenant, const std::string& model);
  /// All that the daemon has, and the tenant behind this one.
  Result<modelwire::StoreLine> store(const std::string& tenant_before);
  /// The line behind this one, of the GPUs of jobs: of a GPU, which has no tenant and no model, or
  /// of a model there. All "": the first. Nothing: there is no other.
  Result<std::optional<modelwire::GpuLine>> gpu_after(const std::string& job,
                                                      const std::string& gpu,
                                                      const std::string& tenant,
                                                      const std::string& model);
  /// Who has a model of the tenant's, behind this job. Nothing: no other. not_found: no such model.
  Result<std::optional<modelwire::HolderLine>> holder_after(const std::string& tenant,
                                                            const std::string& model,
                                                            const std::string& job);

 private:
  ControlClient(Fd socket, Clock::time_point deadline)
      : socket_(std::move(socket)), deadline_(deadline) {}
  Status ask(const modelwire::ControlRequest& request, int passed = -1);
  /// Nothing but a ControlReply without a failure came.
  template <typename Line>
  Result<std::optional<Line>> ask_line(const modelwire::ControlRequest& request);
  /// The bytes of the answer, of `most` at most.
  Result<std::size_t> exchange(const modelwire::ControlRequest& request, int passed, void* answer,
                               std::size_t most);

  Fd socket_;
  Clock::time_point deadline_;
};

}  // namespace bellows
