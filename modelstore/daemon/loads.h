// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/child.h"
#include "common/event_loop.h"
#include "modelstore/book/model_book.h"
#include "modelstore/daemon/disk_link.h"
#include "modelstore/daemon/model_memory.h"
#include "modelstore/daemon/model_registry.h"
#include "modelstore/daemon/peer_book.h"
#include "modelstore/loader/loader_wire.h"

namespace bellows {

/// How far a load is, in bytes.
struct LoadProgress {
  std::uint64_t done = 0;
  std::uint64_t total = 0;  ///< 0: not known yet
  bool reads = false;       ///< else it waits, or is looked for, which has deadlines of its own
};

/// Where the bytes of a load came from.
struct LoadedFrom {
  bool disk = false;
  std::string peer;                   ///< the node that gave it; "": none did
  std::optional<ModelDigest> source;  ///< that of its files, where these were read
  std::chrono::milliseconds took{0};
};

/// What loads come to. Each load ends with one call of done or failed.
class LoadHost {
 public:
  virtual ~LoadHost() = default;
  /// It waits for `fill`.
  virtual void load_sized(ModelId model, std::uint64_t bytes) = 0;
  virtual void load_done(ModelId model, ModelMemory memory, const LoadedFrom& from) = 0;
  virtual void load_failed(ModelId model, const Error& error) = 0;
  /// Of memory that was in use already: the digest that it has.
  virtual void check_done(ModelId model, const Result<ModelDigest>& digest) = 0;
  /// For the log.
  virtual void notice(const std::string& text) = 0;
  /// Memory of a load that came to nothing, which may take long to close.
  virtual void discard(Fd memory) = 0;
};

struct LoadOptions {
  std::string loader;                      ///< the program
  std::chrono::milliseconds stall{60000};  ///< without any progress
  std::chrono::milliseconds room{30000};   ///< to wait for the memory
  unsigned attempts = 2;                   ///< loaders that may die over one model
  int of_tenant = 2;                       ///< loads of one tenant at a time
  bool huge = true;                        ///< huge pages where there are enough
  std::string remote;                      ///< SiteSettings' file; "": nothing is read from afar
  bool files_too = false;                  ///< the disk tier is for models of files, too
};

/// The loaders that are at work, and what waits for one. Never waits for a process: one that hangs
/// in a dead file system may not even end when it is killed, and is let go.
class Loads {
 public:
  using Time = EventLoop::Clock::time_point;

  /// `disk`: null where there is no disk tier; `peers`: where no nodes are asked.
  Loads(EventLoop& loop, LoadHost& host, LoadOptions options, DiskLink* disk, PeerBook* peers)
      : loop_(loop), host_(host), options_(std::move(options)), disk_(disk), peers_(peers) {}

  /// Of a model whose digest is known, an image on the disk will do.
  void start(ModelId model, const ModelRegistry::Registered& registered, const std::string& tenant);
  /// There is room for what load_sized told.
  void fill(ModelId model);
  /// Its load and its check, without a word to the host.
  void stop(ModelId model);
  /// Computes the digest of memory anew, one model after another: loads come first.
  void check(ModelId model, TenantId tenant, const ModelMemory& memory);

  /// Nothing: it is not being loaded.
  std::optional<LoadProgress> progress(ModelId model) const;

  /// Ends what is overdue, and gives the time when to look again.
  Time tick(Time now);

 private:
  enum class Phase { queued, looking, sizing, asking, waiting, filling, checking };
  /// Of a model that other nodes may have.
  struct OfPeers {
    std::string name;  ///< as they know it, of the tenant
    bool tries = false;
    unsigned failed = 0;
    bool sized = false;  ///< a node said how large it is, and nobody else
  };
  struct Load {
    std::uint64_t key = 0;
    ModelId model = 0;
    TenantId tenant = 0;
    std::string tenant_name;
    ModelFrom from;
    std::optional<ModelDigest> digest;
    Phase phase = Phase::queued;
    bool checks = false;
    unsigned attempts = 0;
    bool has_room = false;  ///< `fill` was called
    bool tries_disk = false;
    OfPeers of_peers;
    bool has_version = false;         ///< its loader said which one the source has
    std::uint64_t questions = 0;      ///< that the disk was asked for it: the last one counts
    std::optional<FoundImage> image;  ///< from which its loader reads
    LoadedFrom loaded;
    Time began{};
    ModelMemory memory;  ///< its sizes, and for a check the memory
    Fd writable;
    std::optional<Child> child;
    Fd socket;
    EventLoop::Watch watch;
    std::uint64_t done = 0;  ///< bytes, by its last word
    Time deadline = Time::max();
  };

  void add(Load load);
  /// Whether there is a loader for it now.
  bool may_start(const Load& load) const;
  void start_queued();
  /// Looks for an image, and starts a loader.
  Status begin(Load& load);
  Status start_loader(Load& load);
  /// Whether the disk tier is for such a model.
  bool may_have_image(const ModelFrom& from) const;
  /// `looked_up` comes with the answer. False: there is none.
  bool look_up(Load& load, const ModelDigest& digest, bool of_source);
  void looked_up(std::uint64_t key, std::uint64_t question, std::optional<FoundImage> found);
  Status take_version(Load& load, const LoaderMessage& message);
  /// To the loader that asked: the image, the nodes that may have it, or neither.
  Status give_way(Load& load);
  std::string peers_task(const Load& load) const;
  Status tell_where(const Load& load, const std::string& node);
  void take_lost(const Load& load, const LoaderMessage& message);
  /// What a node gave is wrong, or came no further: it isn't asked again, and another loader
  /// starts.
  Status leave_peer(Load& load, const std::string& why);
  void note_failed_peer(Load& load, const std::string& why);
  Status take_sized(Load& load, const LoaderMessage& message);
  /// The image is wrong, or `why` its loader says so: it goes, and the source is read.
  Status read_source(Load& load, const std::string& why);
  Status give_task(Load& load);
  Status give_memory(Load& load);
  void on_message(std::uint64_t key);
  /// Of one load; an error ends it.
  Status take(Load& load, const LoaderMessage& message);
  Status take_done(Load& load, const LoaderMessage& message);
  Status take_files(Load& load, const LoaderMessage& message);
  /// More time, when there are more bytes than before.
  void take_progress(Load& load, std::uint64_t bytes);
  /// Starts another loader, or gives up.
  void loader_ended(std::uint64_t key, const std::string& why);
  void end(std::uint64_t key, const Error& error);
  void let_go(Load& load);
  /// Finds the load of a model, which is not a check.
  std::map<std::uint64_t, Load>::iterator find(ModelId model);

  EventLoop& loop_;
  LoadHost& host_;
  LoadOptions options_;
  DiskLink* disk_;
  PeerBook* peers_;
  std::map<std::uint64_t, Load> loads_;
  std::uint64_t next_key_ = 1;
  std::list<Child> dying_;
};

}  // namespace bellows
