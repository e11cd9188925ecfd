// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "common/event_loop.h"
#include "common/plain/handle.h"
#include "modelstore/daemon/client_desk.h"
#include "modelstore/daemon/control_report.h"
#include "modelstore/daemon/memory_tier.h"
#include "modelstore/daemon/model_registry.h"
#include "modelstore/daemon/packet_listener.h"
#include "modelstore/wire/control_wire.h"

namespace bellows {

/// The daemon's own socket, for root and the daemon's user. What comes is checked like anything
/// else, and who takes no answers is let go.
class ControlDesk {
 public:
  /// `gpus`: null where models are not on GPUs.
  ControlDesk(EventLoop& loop, ModelRegistry& registry, MemoryTier& tier, const GpuTier* gpus,
              ClientDesk& clients)
      : loop_(loop),
        registry_(registry),
        tier_(tier),
        clients_(clients),
        report_(registry, tier, gpus, clients) {}

  Status listen(Fd listener);
  /// Gives the time when to look again.
  EventLoop::Clock::time_point tick(EventLoop::Clock::time_point now) {
    return listener_.tick(now);
  }

  /// A model that is there from the start. One that was there before a restart stays as it is;
  /// `visible` as the message has it.
  ModelId configure(const std::string& tenant, const std::string& name, const ModelFrom& from,
                    std::string_view visible);
  /// What was there from an earlier start, and is not in `configured`, goes.
  void forget_all_but(const std::set<ModelId>& configured);

 private:
  struct Speaker {
    Fd socket;
    EventLoop::Watch watch;
  };

  void accept_speaker();
  void on_message(std::uint64_t number);
  bool watch(std::uint64_t number, Speaker& speaker);
  /// Its answer comes later; until then nothing is taken from this speaker.
  void verify(std::uint64_t number, const modelwire::ControlRequest& request);
  void end(std::uint64_t number, const modelwire::ControlRequest& request);
  void answer_late(std::uint64_t number, const Status& status);
  /// False: the speaker is gone, or takes nothing.
  bool answer(int socket, const modelwire::ControlRequest& request, plain::Handle& passed);
  /// The tenant's own model.
  Result<ModelId> own(const modelwire::ControlRequest& request) const;
  Status take(const modelwire::ControlRequest& request, plain::Handle& passed);
  Status serve(const modelwire::ControlRequest& request, plain::Handle& passed);
  Status prefetch(const modelwire::ControlRequest& request);
  ModelId add(ModelRegistry::Registered model);
  ModelRegistry::Registered registered(const std::string& tenant, const std::string& name,
                                       const ModelFrom& from, std::string_view visible);
  Status take_of_model(const modelwire::ControlRequest& request);

  EventLoop& loop_;
  ModelRegistry& registry_;
  MemoryTier& tier_;
  ClientDesk& clients_;
  ControlReport report_;
  PacketListener listener_;
  std::map<std::uint64_t, Speaker> speakers_;
  std::uint64_t next_ = 1;
};

}  // namespace bellows
