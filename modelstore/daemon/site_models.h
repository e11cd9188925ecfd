// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/event_loop.h"
#include "common/result.h"
#include "modelstore/daemon/model_options.h"

namespace bellows {

/// The models of a bellows.yaml.
struct SiteList {
  std::vector<ModelOption> models;
  std::vector<std::string> remarks;  ///< which models are left out, and why
};

/// invalid: as load_policy says. unavailable: a user could not be looked up.
Result<SiteList> read_site(const std::string& path);

/// Reads them again and again, each time on a thread of its own: neither a dead file system nor a
/// directory service without an answer may stop the daemon.
class SiteModels {
 public:
  using Taker = std::function<void(const Result<SiteList>&)>;

  /// `taker` is called from the loop's thread.
  static Result<std::unique_ptr<SiteModels>> make(EventLoop& loop, std::string path, Taker taker);
  ~SiteModels();

  /// While the file is being read, it is read once more afterwards.
  void read();
  /// Waits for what is being read, unless it takes longer. It goes to the taker in any case.
  void wait(std::chrono::milliseconds limit);

 private:
  struct Shared;
  SiteModels(std::string path, Taker taker) : path_(std::move(path)), taker_(std::move(taker)) {}
  void on_read();

  std::string path_;
  Taker taker_;
  std::shared_ptr<Shared> shared_;  ///< with the thread, which may outlive this
  EventLoop::Watch watch_;
  bool reading_ = false;
  bool again_ = false;
};

}  // namespace bellows
