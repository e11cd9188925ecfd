// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/model_daemon.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "common/listen_at.h"
#include "modelstore/daemon/store_metrics.h"

namespace bellows {
namespace {

Result<Fd> lock_folder(const std::string& run) {
  if (mkdir(run.c_str(), 0700) < 0 && errno != EEXIST) return errno_error("make", run);
  struct stat s;
  if (lstat(run.c_str(), &s) < 0) return errno_error("look at", run);
  if (!S_ISDIR(s.st_mode) || s.st_uid != geteuid() || (s.st_mode & 0022) != 0)
    return Error{
        ErrorKind::denied,
        fmt::format("{} must be a folder of this user to which nobody else can write", run)};
  auto lock = open_file(run + "/lock", O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
  if (!lock) return lock.error();
  if (flock(lock->get(), LOCK_EX | LOCK_NB) < 0)
    return Error{ErrorKind::busy, fmt::format("another bellows-modeld has {}", run)};
  return lock;
}

constexpr std::chrono::seconds kFirstSite{5};

std::vector<std::string> disk_command(const DiskOption& disk) {
  const auto ttl = std::chrono::duration_cast<std::chrono::seconds>(disk.limits.time_to_live);
  std::vector<std::string> words = {disk.program, disk.directory, std::to_string(disk.limits.bytes),
                                    std::to_string(static_cast<int>(disk.limits.policy)),
                                    std::to_string(ttl.count())};
  for (const TenantOption& tenant : disk.tenants)
    words.push_back(fmt::format("{}={}", tenant.name, tenant.budget));
  return words;
}

std::vector<std::string> peer_command(const PeerOption& peers, std::chrono::milliseconds slow) {
  return {peers.program, peers.self, std::to_string(slow.count()), peers.munge_socket};
}

/// A job's name has no slash.
bool is_socket_option(const std::string& name) { return name.starts_with('/'); }

}  // namespace

Result<std::unique_ptr<ModelDaemon>> ModelDaemon::make(const ModelDaemonOptions& options,
                                                       const Say& say) {
  std::unique_ptr<ModelDaemon> daemon(new ModelDaemon);
  if (auto started = daemon->start(options, say); !started) return started.error();
  return daemon;
}

Status ModelDaemon::start(const ModelDaemonOptions& options, const Say& say) {
  auto lock = lock_folder(options.run);
  if (!lock) return lock.error();
  lock_ = std::move(*lock);
  say_ = say;
  auto loop = EventLoop::make();
  if (!loop) return loop.error();
  loop_ = std::move(*loop);
  if (!options.disk.directory.empty())
    disk_ = std::make_unique<DiskLink>(*loop_, disk_command(options.disk),
                                       options.disk.limits.bytes, options.loads.stall, say);
  if (!options.peers.nodes.empty()) peers_ = std::make_unique<PeerBook>(options.peers, say);
  auto tier = MemoryTier::make(*loop_, options.limits, options.loads, registry_, disk_.get(),
                               peers_.get(), say);
  if (!tier) return tier.error();
  tier_ = std::move(*tier);
  if (peers_)
    peer_link_ = std::make_unique<PeerLink>(*loop_, *tier_, registry_,
                                            peer_command(options.peers, options.loads.stall),
                                            peers_->find(options.peers.self)->port, say);
  if (auto begun = begin_gpus(options); !begun) return begun;
  clients_ =
      std::make_unique<ClientDesk>(*loop_, *tier_, gpus_.get(), registry_, options.most_sockets);
  control_ = std::make_unique<ControlDesk>(*loop_, registry_, *tier_, gpus_.get(), *clients_);
  for (const TenantOption& tenant : options.tenants)
    tier_->add_tenant(registry_.tenant(tenant.name), tenant.budget);
  link_ = std::make_unique<KeeperLink>(*loop_, options.run + "/keeper", options.keeper, say);
  kept_ = std::make_unique<KeptState>(*link_, registry_, *tier_, *clients_, gpus_.get());
  // What is pinned is loaded at once, from its image if there is one.
  if (disk_) disk_->tick(EventLoop::Clock::now());
  if (auto restored = kept_->restore(); !restored) return restored;
  if (auto added = add_models(options); !added) return added;
  if (auto begun = begin_site(options.site); !begun) return begun;
  if (auto begun = begin_metrics(options.metrics); !begun) return begun;
  end_sockets_but(options.sockets);
  for (const SocketOption& socket : options.sockets)
    if (auto served = serve(socket); !served) return served;
  auto control = listen_at(options.run + "/control", 0600);
  return control ? control_->listen(std::move(*control)) : Status(control.error());
}

Status ModelDaemon::begin_gpus(const ModelDaemonOptions& options) {
  if (options.gpu.limits.bytes == 0) return {};
  const std::string& folder = options.gpu.copies.empty_folder;
  if (mkdir(folder.c_str(), 0700) < 0 && errno != EEXIST) return errno_error("make", folder);
  auto gpus = GpuTier::make(*loop_, options.gpu.limits, options.gpu.copies, options.loads.room,
                            *tier_, registry_, say_);
  if (!gpus) return gpus.error();
  gpus_ = std::move(*gpus);
  return {};
}

void ModelDaemon::end_sockets_but(const std::vector<SocketOption>& sockets) {
  for (const std::string& name : clients_->jobs()) {
    const bool stays = std::any_of(sockets.begin(), sockets.end(),
                                   [&](const SocketOption& s) { return s.path == name; });
    if (is_socket_option(name) && !stays) clients_->end(name);
  }
}

Status ModelDaemon::serve(const SocketOption& socket) {
  if (!is_socket_option(socket.path))
    return Error{ErrorKind::invalid, socket.path + " is not absolute, as a socket's path must be"};
  const ServedJob job{socket.path, registry_.tenant(socket.tenant), socket.uid, socket.gpus};
  // Programs may wait in the queue of the one that the keeper had.
  if (const ServedJob* before = clients_->find_job(job.name)) {
    if (before->tenant == job.tenant && before->uid == job.uid && before->gpus == job.gpus)
      return {};
  }
  // Only one user may use it, and the check of the peer says so; a container's root may be another.
  auto listener = listen_at(socket.path, 0666);
  return listener ? clients_->serve(job, std::move(*listener)) : Status(listener.error());
}

Status ModelDaemon::add_models(const ModelDaemonOptions& options) {
  for (const ModelOption& model : options.models) {
    if (!modelwire::is_model_name(model.name.data(), model.name.size()))
      return Error{ErrorKind::invalid, fmt::format("no model can have the name {}", model.name)};
    (void)control_->configure(model.tenant, model.name, model.from, model.visible);
    of_options_.emplace(model.tenant, model.name);
  }
  if (options.site.empty()) control_->forget_all_but(models_of_options());
  return {};
}

std::set<ModelId> ModelDaemon::models_of_options() const {
  std::set<ModelId> models;
  for (const auto& [tenant, name] : of_options_) {
    const auto number = registry_.find_tenant(tenant);
    if (const auto own = number ? registry_.own(*number, name) : std::nullopt) models.insert(*own);
  }
  return models;
}

Status ModelDaemon::begin_site(const std::string& path) {
  if (path.empty()) return {};
  auto site = SiteModels::make(*loop_, path, [this](const auto& list) { take_site(list); });
  if (!site) return site.error();
  site_ = std::move(*site);
  site_->read();
  // So that programs which waited for a restart find the models that are new.
  site_->wait(kFirstSite);
  return {};
}

Status ModelDaemon::begin_metrics(const std::string& path) {
  if (path.empty()) return {};
  auto file = MetricsFile::make(
      *loop_, path, [this] { return metrics_text(registry_, *tier_, gpus_.get(), *clients_); },
      say_);
  if (!file) return file.error();
  metrics_ = std::move(*file);
  return {};
}

/// What can't be read changes nothing, at a start too: the models of before are the keeper's.
void ModelDaemon::take_site(const Result<SiteList>& list) {
  if (!list) return say_(list.error().text + "; the models stay as they were");
  std::set<ModelId> configured = models_of_options();
  for (const ModelOption& model : list->models) {
    // An option of the daemon's is for this node, and comes first.
    if (of_options_.count({model.tenant, model.name}) != 0) continue;
    configured.insert(control_->configure(model.tenant, model.name, model.from, model.visible));
  }
  control_->forget_all_but(configured);
  for (const std::string& remark : list->remarks) say_(remark);
}

void ModelDaemon::take_signal(int signals) {
  signalfd_siginfo info{};
  if (::read(signals, &info, sizeof info) != sizeof info) return;
  ended_ = info.ssi_signo != SIGHUP;
  if (!ended_ && site_) site_->read();
}

void ModelDaemon::run(int signals) {
  auto watch = loop_->watch(signals, EPOLLIN, [&](std::uint32_t) { take_signal(signals); });
  while (watch && !ended_) {
    const auto now = EventLoop::Clock::now();
    // First: it answers, and the tier goes on with that.
    if (disk_) disk_->tick(now);
    if (peer_link_) peer_link_->tick(now);
    const auto metrics = metrics_ ? metrics_->tick(now) : EventLoop::Clock::time_point::max();
    const auto gpus = gpus_ ? gpus_->tick(now) : EventLoop::Clock::time_point::max();
    const auto next = std::min({metrics, gpus, tier_->tick(now), clients_->tick(now),
                                control_->tick(now), link_->tick(now)});
    // Last: the tier has asked the disk for more.
    const auto disk = disk_ ? disk_->next(now) : EventLoop::Clock::time_point::max();
    const auto peers = peer_link_ ? peer_link_->next(now) : EventLoop::Clock::time_point::max();
    loop_->run_once(std::min({next, disk, peers}));
  }
}

}  // namespace bellows
