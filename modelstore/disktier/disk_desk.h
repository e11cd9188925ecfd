// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/fd.h"
#include "common/result.h"
#include "modelstore/book/model_book.h"
#include "modelstore/disk/disk_tier.h"
#include "modelstore/disktier/disk_records.h"
#include "modelstore/disktier/disk_wire.h"
#include "modelstore/disktier/disk_worker.h"

namespace bellows {

struct DiskOptions {
  std::string directory;
  TierLimits limits;
  std::vector<std::pair<std::string, std::uint64_t>> tenants;  ///< and their budgets
};

/// The disk tier: what its book decides, its directory does. Knows which image has which digest,
/// and which was read from which source.
class DiskDesk {
 public:
  using Time = ModelBook::Time;
  using Send = std::function<void(const DiskMessage&, int passed)>;

  /// Looks through the directory, which takes as long as the disk does. `send`: to the daemon.
  static Result<std::unique_ptr<DiskDesk>> open(const DiskOptions& options, Send send);

  void take(const DiskMessage& message, Fd passed);
  /// When it is readable, call on_event.
  int event() const { return worker_->event(); }
  void on_event() { worker_->tell(); }
  /// Writes down what changed, and gives the time when to look again.
  Time tick(Time now);
  /// The last that happens: writes down who used what, unless the disk is at work.
  void end();

 private:
  struct Store {
    std::uint64_t number = 0;
    ModelId model = 0;
    std::string tenant;
    DiskImage image;
    std::uint64_t load_ms = 0;
    std::shared_ptr<Fd> memory;
  };

  DiskDesk(const DiskOptions& options, DiskTier tier, Send send);
  void remove_unfinished_records() const;
  Status read_records();
  void adopt_all();
  TenantId tenant(const std::string& name);
  ModelId model_of(const ImageOf& image);
  /// The tenant's image that was read from there.
  std::optional<ModelDigest> find_source(const ModelDigest& source,
                                         const std::string& tenant) const;
  bool is_anyones(const ModelDigest& digest) const;

  void find(const DiskMessage& message);
  void store(const DiskMessage& message, Fd memory);
  void drop_damaged(const ModelDigest& digest);
  void perform(BookDecisions decisions);
  void perform_one(const BookDecision& decision);
  void write_image();
  void image_written(const Status& written);
  void remove(ModelId model, EvictionId eviction);
  /// The daemon, when there are more or fewer than before; at first in any case.
  void tell_held();
  void remove_file(const ModelDigest& digest);
  void note_use(const ImageOf& image);
  /// The work of writing them down; what they are is taken now.
  DiskWorker::Work records_writer();
  void reply(DiskWord word, std::uint64_t number, const std::string& text = "");
  void say(const std::string& text) { reply(DiskWord::notice, 0, text); }
  static Time now() { return std::chrono::steady_clock::now(); }

  DiskTier tier_;
  std::string records_path_;
  Send send_;
  ModelBook book_;
  DiskRecords records_;
  std::map<std::string, TenantId> tenants_;
  std::map<ImageOf, ModelId> models_;
  std::map<ModelId, ImageOf> images_;
  ModelId next_model_ = 1;
  std::optional<Store> store_;  ///< one at a time
  std::shared_ptr<std::atomic<std::uint64_t>> wrote_;
  std::uint64_t told_ = 0;
  std::uint64_t told_images_ = UINT64_MAX, told_bytes_ = 0;
  bool changed_ = false;  ///< since the records were written
  bool writing_ = false;
  Time write_at_{};
  /// Last: its thread uses the rest.
  std::unique_ptr<DiskWorker> worker_;
};

}  // namespace bellows
