// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/loads.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/epoll.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <utility>

#include "modelstore/daemon/helper_process.h"
#include "modelstore/loader/model_place.h"

namespace bellows {
namespace {

constexpr std::chrono::milliseconds kReap{100};
constexpr std::uint64_t kMostMemory = std::uint64_t{1} << 57;

}  // namespace

std::map<std::uint64_t, Loads::Load>::iterator Loads::find(ModelId model) {
  return std::find_if(loads_.begin(), loads_.end(), [model](const auto& entry) {
    return entry.second.model == model && !entry.second.checks;
  });
}

std::optional<LoadProgress> Loads::progress(ModelId model) const {
  for (const auto& [key, load] : loads_)
    // What a loader says that went mad is not more than all.
    if (load.model == model && !load.checks)
      return LoadProgress{std::min(load.done, load.memory.bytes), load.memory.bytes,
                          load.phase == Phase::filling};
  return std::nullopt;
}

bool Loads::may_have_image(const ModelFrom& from) const {
  return disk_ && (options_.files_too || is_remote_place(from.path));
}

void Loads::start(ModelId model, const ModelRegistry::Registered& registered,
                  const std::string& tenant) {
  Load load;
  load.model = model;
  load.tenant = registered.tenant;
  load.tenant_name = tenant;
  load.from = registered.from;
  load.digest = registered.digest;
  load.of_peers.name = registered.name;
  load.tries_disk = may_have_image(load.from);
  // Other nodes have the same models from the start, and no others.
  load.of_peers.tries = peers_ && registered.configured && is_remote_place(load.from.path);
  add(std::move(load));
}

void Loads::check(ModelId model, TenantId tenant, const ModelMemory& memory) {
  Load load;
  load.model = model;
  load.tenant = tenant;
  load.checks = true;
  load.memory.bytes = memory.bytes;
  load.memory.digest = memory.digest;
  load.memory.reader.reset(fcntl(memory.reader.get(), F_DUPFD_CLOEXEC, 0));
  add(std::move(load));
}

void Loads::add(Load load) {
  load.key = next_key_++;
  loads_.emplace(load.key, std::move(load));
  start_queued();
}

bool Loads::may_start(const Load& load) const {
  const auto at_work = std::count_if(loads_.begin(), loads_.end(), [&](const auto& entry) {
    const Load& other = entry.second;
    return other.phase != Phase::queued && other.checks == load.checks &&
           (load.checks || other.tenant == load.tenant);
  });
  return at_work < (load.checks ? 1 : options_.of_tenant);
}

void Loads::start_queued() {
  std::vector<std::pair<std::uint64_t, Error>> failed;
  for (auto& [key, load] : loads_) {
    if (load.phase != Phase::queued || !may_start(load)) continue;
    load.began = EventLoop::Clock::now();
    if (auto begun = begin(load); !begun) failed.emplace_back(key, begun.error());
  }
  for (const auto& [key, error] : failed) end(key, error);
}

Status Loads::begin(Load& load) {
  if (load.tries_disk && load.digest && look_up(load, *load.digest, false)) {
    load.phase = Phase::looking;
    return {};
  }
  return start_loader(load);
}

bool Loads::look_up(Load& load, const ModelDigest& digest, bool of_source) {
  // It always answers, and in time.
  load.deadline = Time::max();
  return disk_->find(
      digest, of_source, load.tenant_name,
      [this, key = load.key, question = ++load.questions](std::optional<FoundImage> found) {
        looked_up(key, question, std::move(found));
      });
}

void Loads::looked_up(std::uint64_t key, std::uint64_t question, std::optional<FoundImage> found) {
  const auto entry = loads_.find(key);
  if (entry == loads_.end()) return;
  Load& load = entry->second;
  // Its loader may have died meanwhile, and another asks anew.
  if (question != load.questions || (load.phase != Phase::looking && load.phase != Phase::asking))
    return;
  load.image = std::move(found);
  auto given = load.phase == Phase::looking ? start_loader(load) : give_way(load);
  if (!given) end(key, given.error());
}

Status Loads::start_loader(Load& load) {
  load.phase = load.checks ? Phase::checking : Phase::sizing;
  ChildOptions options;
  options.command = {options_.loader};
  // The others need no keys.
  if (!load.checks && !load.image && !options_.remote.empty() && is_remote_place(load.from.path))
    options.command.push_back(options_.remote);
  options.death_signal = SIGKILL;
  auto helper = start_helper(options, "a loader");
  if (!helper) return helper.error();
  load.socket = std::move(helper->socket);
  load.child.emplace(std::move(helper->child));
  ++load.attempts;
  load.done = 0;
  load.has_version = false;
  load.loaded.peer.clear();
  load.memory.files.clear();
  auto watch = loop_.watch(load.socket.get(), EPOLLIN,
                           [this, key = load.key](std::uint32_t) { on_message(key); });
  if (!watch) return watch.error();
  load.watch = std::move(*watch);
  load.deadline = EventLoop::Clock::now() + options_.stall;
  return give_task(load);
}

Status Loads::give_task(Load& load) {
  LoaderMessage task;
  if (load.checks) {
    task.word = LoaderWord::check;
    task.bytes = load.memory.bytes;
    return send_message(load.socket.get(), task, load.memory.reader.get());
  }
  if (load.image) {
    task.word = LoaderWord::image;
    return send_message(load.socket.get(), task, load.image->file.get());
  }
  task.word = LoaderWord::load;
  task.uid = load.from.uid;
  task.asks = load.tries_disk || load.of_peers.tries ? 1 : 0;
  task.set_text(load.from.path);
  return send_message(load.socket.get(), task);
}

Status Loads::take_version(Load& load, const LoaderMessage& message) {
  const bool asked = load.tries_disk || load.of_peers.tries;
  if (load.phase != Phase::sizing || !asked || load.has_version)
    return Error{ErrorKind::internal, "a loader said what nobody asked for"};
  load.has_version = true;
  load.loaded.source = message.digest;
  if (!load.tries_disk || !look_up(load, *load.loaded.source, true)) return give_way(load);
  load.phase = Phase::asking;
  return {};
}

Status Loads::give_way(Load& load) {
  load.phase = Phase::sizing;
  load.deadline = EventLoop::Clock::now() + options_.stall;
  LoaderMessage message;
  message.word = load.image ? LoaderWord::image : LoaderWord::go_on;
  if (!load.image && load.of_peers.tries) {
    message.set_bytes(peers_task(load));
    if (message.length > 0) message.word = LoaderWord::peers;
  }
  return send_message(load.socket.get(), message, load.image ? load.image->file.get() : -1);
}

Status Loads::read_source(Load& load, const std::string& why) {
  host_.notice(
      fmt::format("the image of {} on the disk, with the digest {}, is removed, and the "
                  "model read from its source: {}",
                  shown_place(load.from.path), load.image->digest.to_string(), why));
  disk_->damaged(load.image->digest);
  let_go(load);
  load.tries_disk = false;
  load.attempts = 0;
  return start_loader(load);
}

void Loads::fill(ModelId model) {
  const auto found = find(model);
  if (found == loads_.end()) return;
  found->second.has_room = true;
  // Another loader, after one that died, may still be reading the headers.
  if (found->second.phase != Phase::waiting) return;
  if (auto given = give_memory(found->second); !given) end(found->first, given.error());
}

Status Loads::give_memory(Load& load) {
  // After huge pages that could not be had after all, small ones.
  auto memory = make_model_memory(load.memory.bytes, options_.huge && load.attempts == 1);
  if (!memory) return memory.error();
  load.writable = std::move(memory->fd);
  load.phase = Phase::filling;
  load.done = 0;
  load.deadline = EventLoop::Clock::now() + options_.stall;
  LoaderMessage message;
  message.word = LoaderWord::fill;
  message.asks = memory->huge ? 1 : 0;
  return send_message(load.socket.get(), message, load.writable.get());
}

void Loads::on_message(std::uint64_t key) {
  const auto found = loads_.find(key);
  if (found == loads_.end()) return;
  LoaderMessage message;
  const auto received = receive_message(found->second.socket.get(), &message, nullptr);
  if (!received) {
    const bool gone = received.error().kind == ErrorKind::unavailable;
    return gone ? loader_ended(key, "ended before it was done") : end(key, received.error());
  }
  if (!*received) return;
  if (auto taken = take(found->second, message); !taken) end(key, taken.error());
}

Status Loads::take(Load& load, const LoaderMessage& message) {
  const Error nonsense{ErrorKind::internal, "a loader said what nobody asked for"};
  switch (message.word) {
    case LoaderWord::failed: {
      const Error error = message.to_error();
      const bool of_image =
          load.image && (error.kind == ErrorKind::corrupt || error.kind == ErrorKind::io);
      const bool of_peer = !load.loaded.peer.empty() &&
                           (error.kind == ErrorKind::corrupt || error.kind == ErrorKind::io);
      if (of_peer) return leave_peer(load, error.text);
      return of_image ? read_source(load, error.text) : Status(error);
    }
    case LoaderWord::version:
      return take_version(load, message);
    case LoaderWord::progress:
      take_progress(load, message.bytes);
      return {};
    case LoaderWord::done:
      return load.phase == Phase::filling || load.phase == Phase::checking
                 ? take_done(load, message)
                 : Status(nonsense);
    case LoaderWord::files:
      return load.phase == Phase::sizing ? take_files(load, message) : Status(nonsense);
    case LoaderWord::sized:
      return take_sized(load, message);
    case LoaderWord::peer_lost:
      take_lost(load, message);
      return {};
    case LoaderWord::peer_at:
      return tell_where(load, std::string(message.text_view()));
    case LoaderWord::peers:
    case LoaderWord::load:
    case LoaderWord::check:
    case LoaderWord::fill:
    case LoaderWord::image:
    case LoaderWord::go_on:
    case LoaderWord::copy:
      break;
  }
  return nonsense;
}

Status Loads::take_sized(Load& load, const LoaderMessage& message) {
  const bool fits = message.bytes > 0 && message.bytes <= kMostMemory &&
                    message.catalogue_bytes <= message.bytes && message.catalogue_at % 8 == 0 &&
                    message.catalogue_at <= message.bytes - message.catalogue_bytes;
  if (load.phase != Phase::sizing || !fits)
    return Error{ErrorKind::internal, "a loader said what nobody asked for"};
  const bool again = load.memory.bytes > 0;
  // What was reserved is another's word. Whoever opens it next has the source read.
  if (again && load.memory.bytes != message.bytes && load.of_peers.sized)
    return Error{ErrorKind::unavailable,
                 fmt::format("{}: another node gave it a wrong size, and is not asked for it any "
                             "more: try again",
                             shown_place(load.from.path))};
  if (again && load.memory.bytes != message.bytes)
    return Error{ErrorKind::corrupt,
                 shown_place(load.from.path) + " was changed while it was read"};
  if (load.of_peers.tries && load.has_version && !load.image)
    load.loaded.peer = message.text_view();
  load.of_peers.sized = (!again || load.of_peers.sized) && !load.loaded.peer.empty();
  load.memory.bytes = message.bytes;
  load.memory.catalogue_at = message.catalogue_at;
  load.memory.catalogue_bytes = message.catalogue_bytes;
  if (load.has_room) return give_memory(load);
  load.phase = Phase::waiting;
  load.deadline = EventLoop::Clock::now() + options_.room;
  // After one that died, the host knows already.
  if (!again) host_.load_sized(load.model, message.bytes);
  return {};
}

Status Loads::take_files(Load& load, const LoaderMessage& message) {
  constexpr std::size_t kMost = 1024;
  const std::string_view all = message.text_view();
  plain::FileIdentity identity;
  if (all.size() % sizeof identity != 0 ||
      load.memory.files.size() + all.size() / sizeof identity > kMost)
    return Error{ErrorKind::internal, "a loader named files that can't be"};
  for (std::size_t at = 0; at < all.size(); at += sizeof identity) {
    std::memcpy(identity.data(), all.data() + at, sizeof identity);
    load.memory.files.push_back(identity);
  }
  return {};
}

void Loads::take_progress(Load& load, std::uint64_t bytes) {
  const bool at_work =
      load.phase == Phase::sizing || load.phase == Phase::filling || load.phase == Phase::checking;
  // A loader whose reads hang can still speak.
  if (!at_work || bytes <= load.done) return;
  load.done = bytes;
  load.deadline = EventLoop::Clock::now() + options_.stall;
}

Status Loads::take_done(Load& load, const LoaderMessage& message) {
  const ModelId model = load.model;
  const bool checks = load.checks;
  // Of all bytes, as they are in memory now.
  if (load.image && load.image->digest != message.digest)
    return read_source(load, "it does not have its digest");
  ModelMemory memory = std::move(load.memory);
  memory.digest = message.digest;
  LoadedFrom from = load.loaded;
  from.disk = load.image.has_value();
  if (!from.peer.empty()) peers_->worked(from.peer);
  // It was asked by the digest, and may have read another version than the source has now.
  if (!from.peer.empty() && load.digest) from.source.reset();
  from.took =
      std::chrono::duration_cast<std::chrono::milliseconds>(EventLoop::Clock::now() - load.began);
  if (!checks) {
    if (auto sealed = memory.seal(std::move(load.writable)); !sealed) return sealed;
  }
  let_go(load);
  loads_.erase(load.key);
  if (checks) {
    host_.check_done(model, memory.digest);
  } else {
    host_.load_done(model, std::move(memory), from);
  }
  start_queued();
  return {};
}

void Loads::loader_ended(std::uint64_t key, const std::string& why) {
  Load& load = loads_.at(key);
  std::string how = why;
  if (load.child)
    if (const auto& exit = load.child->poll_exit()) how = exit->to_string();
  const std::string what = load.checks ? "a model in memory" : shown_place(load.from.path);
  // The disk may be what it died or hung of.
  if (load.image) load.tries_disk = false;
  if (!load.loaded.peer.empty()) note_failed_peer(load, "the loader that read from it " + how);
  let_go(load);
  if (load.attempts < options_.attempts) {
    if (auto started = start_loader(load); !started) end(key, started.error());
    return;
  }
  end(key, Error{ErrorKind::unavailable,
                 fmt::format("{} could not be read: its loader {}{}", what, how,
                             load.attempts > 1 ? ", and so did the one before" : "")});
}

void Loads::let_go(Load& load) {
  load.watch.end();
  load.socket.reset();
  load.image.reset();
  if (load.writable) host_.discard(std::move(load.writable));
  if (!load.child) return;
  load.child->signal(SIGKILL);
  dying_.push_back(std::move(*load.child));
  load.child.reset();
}

void Loads::end(std::uint64_t key, const Error& error) {
  const auto found = loads_.find(key);
  if (found == loads_.end()) return;
  const ModelId model = found->second.model;
  const bool checks = found->second.checks;
  let_go(found->second);
  loads_.erase(found);
  if (checks) {
    host_.check_done(model, error);
  } else {
    host_.load_failed(model, error);
  }
  start_queued();
}

void Loads::stop(ModelId model) {
  for (auto entry = loads_.begin(); entry != loads_.end();) {
    if (entry->second.model == model) {
      Load& load = entry->second;
      // The next one who wants it has its source asked how large it is.
      if (load.phase == Phase::waiting && load.of_peers.sized)
        note_failed_peer(load, "there was no room for a model of the size that it told");
      let_go(load);
      entry = loads_.erase(entry);
    } else {
      ++entry;
    }
  }
  start_queued();
}

Loads::Time Loads::tick(Time now) {
  std::vector<std::uint64_t> overdue;
  for (const auto& [key, load] : loads_)
    if (load.deadline <= now) overdue.push_back(key);
  for (const std::uint64_t key : overdue) {
    const auto found = loads_.find(key);
    if (found == loads_.end()) continue;
    if (found->second.phase == Phase::waiting) {
      end(key, Error{ErrorKind::busy,
                     "there is no room for the model: memory that was given back is still in use "
                     "by the program that had it; try again later"});
    } else {
      loader_ended(key, fmt::format("made no progress for {} s",
                                    std::chrono::duration<double>(options_.stall).count()));
    }
  }
  dying_.remove_if([](Child& child) { return child.poll_exit().has_value(); });
  Time next = dying_.empty() ? Time::max() : now + kReap;
  for (const auto& [key, load] : loads_) next = std::min(next, load.deadline);
  return next;
}

}  // namespace bellows
