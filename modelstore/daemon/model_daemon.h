// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/event_loop.h"
#include "modelstore/daemon/client_desk.h"
#include "modelstore/daemon/control_desk.h"
#include "modelstore/daemon/disk_link.h"
#include "modelstore/daemon/gpu_tier.h"
#include "modelstore/daemon/keeper_link.h"
#include "modelstore/daemon/kept_state.h"
#include "modelstore/daemon/memory_tier.h"
#include "modelstore/daemon/metrics_file.h"
#include "modelstore/daemon/model_options.h"
#include "modelstore/daemon/model_registry.h"
#include "modelstore/daemon/peer_book.h"
#include "modelstore/daemon/peer_link.h"
#include "modelstore/daemon/site_models.h"

namespace bellows {

struct SocketOption {
  std::string path;
  std::string tenant;
  uid_t uid = 0;
  std::set<std::uint64_t> gpus{};
};

struct TenantOption {
  std::string name;
  std::uint64_t budget = 0;
};

/// The disk tier.
struct DiskOption {
  std::string program;
  std::string directory;  ///< "": there is none
  TierLimits limits;
  std::vector<TenantOption> tenants;
};

/// The tier of GPUs.
struct GpuOption {
  TierLimits limits;  ///< of a job on a GPU; bytes 0: there is none
  GpuCopyOptions copies;
};

struct ModelDaemonOptions {
  std::string run;                  ///< the daemon's own folder
  std::vector<std::string> keeper;  ///< the keeper's program and arguments
  TierLimits limits;
  LoadOptions loads;
  DiskOption disk;
  PeerOption peers;
  GpuOption gpu;
  std::size_t most_sockets = 0;  ///< of jobs and their programs; loaders take others
  std::vector<TenantOption> tenants;
  std::vector<ModelOption> models;
  std::vector<SocketOption> sockets;
  std::string site;     ///< a bellows.yaml whose models are there too; empty: none
  std::string metrics;  ///< MetricsFile's; empty: none
};

/// bellows-modeld: all its parts, and its loop.
class ModelDaemon {
 public:
  using Say = std::function<void(const std::string&)>;

  static Result<std::unique_ptr<ModelDaemon>> make(const ModelDaemonOptions& options,
                                                   const Say& say);
  /// Until `signals`, a signalfd, has another than SIGHUP, which has the site's file read again.
  void run(int signals);

 private:
  ModelDaemon() = default;
  Status start(const ModelDaemonOptions& options, const Say& say);
  Status begin_gpus(const ModelDaemonOptions& options);
  Status add_models(const ModelDaemonOptions& options);
  Status begin_site(const std::string& path);
  Status begin_metrics(const std::string& path);
  void take_site(const Result<SiteList>& list);
  std::set<ModelId> models_of_options() const;
  void take_signal(int signals);
  Status serve(const SocketOption& socket);
  /// Those of earlier options are served no more.
  void end_sockets_but(const std::vector<SocketOption>& sockets);

  std::unique_ptr<EventLoop> loop_;
  ModelRegistry registry_;
  std::unique_ptr<DiskLink> disk_;
  std::unique_ptr<PeerBook> peers_;
  std::unique_ptr<MemoryTier> tier_;
  std::unique_ptr<PeerLink> peer_link_;
  std::unique_ptr<GpuTier> gpus_;
  std::unique_ptr<ClientDesk> clients_;
  std::unique_ptr<ControlDesk> control_;
  std::unique_ptr<KeeperLink> link_;
  std::unique_ptr<KeptState> kept_;
  std::unique_ptr<SiteModels> site_;
  std::unique_ptr<MetricsFile> metrics_;
  /// Of tenants, by their names: a number is another one's once a model's memory was wrong.
  std::set<std::pair<std::string, std::string>> of_options_;
  Say say_;
  bool ended_ = false;
  Fd lock_;
};

}  // namespace bellows
