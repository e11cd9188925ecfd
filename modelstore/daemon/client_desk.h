// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/event_loop.h"
#include "modelstore/daemon/gpu_tier.h"
#include "modelstore/daemon/memory_tier.h"
#include "modelstore/daemon/model_registry.h"
#include "modelstore/daemon/packet_listener.h"
#include "modelstore/wire/model_wire.h"

namespace bellows {

/// For whom a socket is.
struct ServedJob {
  std::string name;  ///< by which it is ended
  TenantId tenant = 0;
  uid_t uid = 0;                   ///< whose processes may connect
  std::set<std::uint64_t> gpus{};  ///< on which they may open models
};

/// Is told of sockets that a restarted daemon has to serve again.
class JobWatcher {
 public:
  virtual ~JobWatcher() = default;
  virtual void job_served(const ServedJob& job, int listener) = 0;
  virtual void job_ended(const std::string& job) = 0;
};

/// The sockets of jobs and the programs on them. Who a program is is known by the socket through
/// which it came, and by its user; never by what it says. A program that takes no answers, sends
/// nonsense or too much is let go; none can make another wait.
class ClientDesk final : private TicketHost, private GpuTicketHost {
 public:
  static constexpr std::size_t kMostClients = 256;  ///< of one job
  static constexpr std::size_t kMostHandles = 64;   ///< of one client

  /// `gpus`: null where models are not on GPUs. `most_sockets`: of all jobs and clients together.
  ClientDesk(EventLoop& loop, MemoryTier& tier, GpuTier* gpus, const ModelRegistry& registry,
             std::size_t most_sockets)
      : loop_(loop), tier_(tier), gpus_(gpus), registry_(registry), most_sockets_(most_sockets) {
    if (gpus_) gpus_->set_host(this);
  }

  /// Takes clients from a listening socket; what was served by this name ends. unavailable: there
  /// are too many.
  Status serve(const ServedJob& job, Fd listener);
  /// Ends its socket and its clients, and gives back its memory on GPUs: `done` is called once,
  /// with GpuTier's answer. False: there is none, and `done` is not called.
  bool end(const std::string& job, const GpuTier::Ended& done = {});
  /// Has models on these GPUs for the job, too. not_found: there is no such job.
  Status add_gpus(const std::string& job, const std::set<std::uint64_t>& gpus);
  /// Begins to put what the job sees by this name on all of its GPUs. not_found: there is no such
  /// job or model; unavailable: models are not on GPUs.
  Status prefetch_on_gpus(const std::string& job, const std::string& model);
  /// Null when none is served by this name.
  const ServedJob* find_job(const std::string& job) const;
  std::vector<std::string> jobs() const;
  void set_watcher(JobWatcher* watcher) { watcher_ = watcher; }
  /// Tells the watcher of all that are served.
  void tell_of_jobs();
  std::size_t clients() const { return clients_.size(); }
  /// How often each job's programs have this model open, or wait for it.
  std::map<std::string, std::uint64_t> holders(ModelId model) const;

  /// Takes clients again when descriptors had run out, and ends jobs whose sockets have lost their
  /// names; gives the time when to look again.
  EventLoop::Clock::time_point tick(EventLoop::Clock::time_point now);

 private:
  struct Job {
    ServedJob job;
    std::unique_ptr<PacketListener> listener;
    std::set<std::uint64_t> clients;
  };
  struct Client {
    std::string job;
    TenantId tenant = 0;
    Fd socket;
    EventLoop::Watch watch;
    std::map<std::uint64_t, TicketId> tickets;  ///< by handle
  };
  struct Ticket {
    std::uint64_t client;
    std::uint64_t handle;
    ModelId model;
    std::optional<plain::FileIdentity> file;  ///< of which the model has to be
    bool on_gpu = false;
  };

  void granted(TicketId ticket, const ModelMemory& memory) override;
  void granted(TicketId ticket, const GpuCopy& copy) override;
  void refused(TicketId ticket, const Error& error) override;
  std::optional<TenantId> tenant_of(const std::string& job) const override;

  void end_nameless();
  bool is_full() const { return jobs_.size() + clients_.size() >= most_sockets_; }
  void accept_client(const std::string& job);
  void on_message(std::uint64_t number);
  void take(std::uint64_t number, Client& client, const modelwire::ModelRequest& request);
  void open(std::uint64_t number, Client& client, const modelwire::ModelRequest& request);
  void prefetch(std::uint64_t number, const Client& client, const modelwire::ModelRequest& request);
  void tell_of_gpu(std::uint64_t number, const Client& client,
                   const modelwire::ModelRequest& request);
  void tell_progress(std::uint64_t number, const Client& client, std::uint64_t handle);
  void tell_of_model(std::uint64_t number, const Client& client,
                     const modelwire::ModelRequest& request);
  void drop(std::uint64_t number);
  /// The ticket's, when it may have the model after all; null: it is over.
  const Ticket* take_grant(TicketId ticket);
  void close(TicketId ticket, bool on_gpu);
  /// The job's GPU; null: it is for memory. not_found: the job has no such GPU.
  Result<std::optional<GpuPlace>> place_of(const Client& client,
                                           const modelwire::ModelRequest& request) const;
  std::optional<ModelId> find(TenantId viewer, const modelwire::ModelRequest& request) const;
  static std::optional<plain::FileIdentity> file_of(const modelwire::ModelRequest& request);
  /// False: the client did not take it.
  template <typename Message>
  static bool answer(const Client& client, const Message& message, int passed = -1);
  static modelwire::ModelReply failure(std::uint64_t handle, const Error& error);

  EventLoop& loop_;
  MemoryTier& tier_;
  GpuTier* gpus_;
  const ModelRegistry& registry_;
  std::size_t most_sockets_;
  JobWatcher* watcher_ = nullptr;
  std::map<std::string, Job> jobs_;
  std::map<std::uint64_t, Client> clients_;
  std::map<TicketId, Ticket> tickets_;
  EventLoop::Clock::time_point look_at_{};  ///< the names of sockets
  std::uint64_t next_client_ = 1;
  TicketId next_ticket_ = 1;
};

}  // namespace bellows
