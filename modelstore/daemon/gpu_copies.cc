// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/gpu_copies.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/epoll.h>

#include <algorithm>
#include <csignal>
#include <utility>
#include <vector>

#include "modelstore/daemon/helper_process.h"
#include "modelstore/wire/gpu_address.h"

namespace bellows {
namespace {

constexpr std::chrono::milliseconds kReap{20};
/// Of one GPU: a process that ends takes some time.
constexpr std::ptrdiff_t kMostDying = 2;

std::string text_of(std::uint64_t gpu) {
  char text[modelwire::kGpuText];
  modelwire::write_gpu(gpu, text);
  return text;
}

}  // namespace

std::string GpuPlace::to_string() const {
  return fmt::format("GPU {} of job {}", text_of(gpu), job);
}

void GpuCopies::start(std::uint64_t key, const GpuPlace& place, const ModelMemory& memory) {
  Copy copy;
  copy.place = place;
  copy.memory.bytes = memory.bytes;
  copy.memory.catalogue_at = memory.catalogue_at;
  copy.memory.catalogue_bytes = memory.catalogue_bytes;
  copy.memory.digest = memory.digest;
  copy.memory.reader.reset(fcntl(memory.reader.get(), F_DUPFD_CLOEXEC, 0));
  copies_.emplace(key, std::move(copy));
  start_queued();
}

bool GpuCopies::is_busy(std::uint64_t gpu) const {
  return std::any_of(copies_.begin(), copies_.end(), [gpu](const auto& entry) {
    return entry.second.child && entry.second.place.gpu == gpu;
  });
}

bool GpuCopies::is_stuck(std::uint64_t gpu) const {
  return std::count_if(dying_.begin(), dying_.end(),
                       [gpu](const Dying& dying) { return dying.place.gpu == gpu; }) >= kMostDying;
}

void GpuCopies::start_queued() {
  std::vector<std::pair<std::uint64_t, Error>> failed;
  for (auto& [key, copy] : copies_) {
    if (copy.child) continue;
    if (is_busy(copy.place.gpu)) {
      copy.deadline = Time::max();
    } else if (is_stuck(copy.place.gpu)) {
      if (copy.deadline == Time::max()) copy.deadline = EventLoop::Clock::now() + options_.stall;
    } else if (auto begun = begin(key, copy); !begun) {
      failed.emplace_back(key, begun.error());
    }
  }
  for (const auto& [key, error] : failed) end(key, error);
}

Status GpuCopies::begin(std::uint64_t key, Copy& copy) {
  auto catalogue = make_model_memory(copy.memory.catalogue_bytes, false);
  if (!catalogue) return catalogue.error();
  copy.catalogue = std::move(catalogue->fd);
  ChildOptions options;
  options.command = {options_.program, options_.library};
  // Else libcuda.so.1 looks for the server of MPS in /tmp, where any user may have put one.
  options.environment = {"CUDA_MPS_PIPE_DIRECTORY=" + options_.empty_folder};
  options.death_signal = SIGKILL;
  auto helper = start_helper(options, "bellows-model-gpu");
  if (!helper) return helper.error();
  copy.socket = std::move(helper->socket);
  copy.child.emplace(std::move(helper->child));
  auto watch =
      loop_.watch(copy.socket.get(), EPOLLIN, [this, key](std::uint32_t) { on_message(key); });
  if (!watch) return watch.error();
  copy.watch = std::move(*watch);
  copy.deadline = EventLoop::Clock::now() + options_.stall;
  return give_task(copy);
}

Status GpuCopies::give_task(Copy& copy) {
  LoaderMessage task;
  task.word = LoaderWord::copy;
  task.bytes = copy.memory.bytes;
  task.catalogue_at = copy.memory.catalogue_at;
  task.catalogue_bytes = copy.memory.catalogue_bytes;
  task.digest = copy.memory.digest;
  task.set_text(text_of(copy.place.gpu));
  if (auto sent = send_message(copy.socket.get(), task, copy.memory.reader.get()); !sent)
    return sent;
  LoaderMessage fill;
  fill.word = LoaderWord::fill;
  return send_message(copy.socket.get(), fill, copy.catalogue.get());
}

void GpuCopies::on_message(std::uint64_t key) {
  Copy& copy = copies_.at(key);
  LoaderMessage message;
  plain::Handle passed;
  const auto received = receive_message(copy.socket.get(), &message, &passed);
  if (!received) {
    const bool gone = received.error().kind == ErrorKind::unavailable;
    return end(key, gone ? ended(copy) : received.error());
  }
  if (!*received) return;
  if (message.word == LoaderWord::failed) return end(key, message.to_error());
  if (message.word == LoaderWord::done) {
    auto taken = take_done(key, message.bytes, Fd(passed.release()));
    return taken ? void() : end(key, taken.error());
  }
  if (message.word != LoaderWord::progress)
    return end(key, Error{ErrorKind::internal, "bellows-model-gpu said what nobody asked for"});
  // A process whose driver hangs speaks still.
  if (message.bytes <= copy.done) return;
  copy.done = message.bytes;
  copy.deadline = EventLoop::Clock::now() + options_.stall;
}

Status GpuCopies::take_done(std::uint64_t key, std::uint64_t bytes, Fd memory) {
  Copy& copy = copies_.at(key);
  GpuCopy made;
  made.memory = std::move(memory);
  made.bytes = bytes;
  made.catalogue_at = copy.memory.catalogue_at;
  made.digest = copy.memory.digest;
  made.catalogue.bytes = copy.memory.catalogue_bytes;
  made.catalogue.catalogue_bytes = copy.memory.catalogue_bytes;
  if (!made.memory || bytes < copy.memory.bytes || bytes > room_on_gpu(copy.memory.bytes))
    return Error{ErrorKind::internal, "bellows-model-gpu made other memory than it was asked for"};
  if (auto sealed = made.catalogue.seal(std::move(copy.catalogue)); !sealed) return sealed;
  let_go(copy);
  copies_.erase(key);
  host_.copy_done(key, std::move(made));
  start_queued();
  return {};
}

Error GpuCopies::ended(Copy& copy) const {
  std::string how = "ended before it was done";
  if (const auto& exit = copy.child->poll_exit()) how = exit->to_string();
  return Error{ErrorKind::unavailable,
               fmt::format("the model could not be copied to {}: bellows-model-gpu {}",
                           copy.place.to_string(), how)};
}

void GpuCopies::let_go(Copy& copy) {
  copy.watch.end();
  copy.socket.reset();
  if (!copy.child) return;
  copy.child->signal(SIGKILL);
  dying_.push_back({copy.place, std::move(*copy.child)});
  copy.child.reset();
}

void GpuCopies::end(std::uint64_t key, const Error& error) {
  const auto found = copies_.find(key);
  if (found == copies_.end()) return;
  let_go(found->second);
  copies_.erase(found);
  host_.copy_failed(key, error);
  start_queued();
}

void GpuCopies::stop(std::uint64_t key) {
  const auto found = copies_.find(key);
  if (found == copies_.end()) return;
  let_go(found->second);
  copies_.erase(found);
  start_queued();
}

std::optional<LoadProgress> GpuCopies::progress(std::uint64_t key) const {
  const auto found = copies_.find(key);
  if (found == copies_.end()) return std::nullopt;
  const std::uint64_t all = found->second.memory.bytes;
  return LoadProgress{std::min(found->second.done, all), all};
}

bool GpuCopies::is_at_work(const std::string& job) const {
  return std::any_of(dying_.begin(), dying_.end(),
                     [&](const Dying& dying) { return dying.place.job == job; }) ||
         std::any_of(copies_.begin(), copies_.end(), [&](const auto& entry) {
           return entry.second.place.job == job && entry.second.child;
         });
}

Error GpuCopies::stalled(const Copy& copy) const {
  const char* why = copy.child ? "the driver made no progress"
                               : "processes that were killed have not ended there";
  return Error{
      ErrorKind::unavailable,
      fmt::format("the model could not be copied to {}: {} for {} s", copy.place.to_string(), why,
                  std::chrono::duration<double>(options_.stall).count())};
}

GpuCopies::Time GpuCopies::tick(Time now) {
  std::vector<std::uint64_t> overdue;
  for (const auto& [key, copy] : copies_)
    if (copy.deadline <= now) overdue.push_back(key);
  for (const std::uint64_t key : overdue)
    if (const auto found = copies_.find(key); found != copies_.end())
      end(key, stalled(found->second));
  if (dying_.remove_if([](Dying& dying) { return dying.child.poll_exit().has_value(); }) > 0)
    start_queued();
  Time next = dying_.empty() ? Time::max() : now + kReap;
  for (const auto& [key, copy] : copies_) next = std::min(next, copy.deadline);
  return next;
}

}  // namespace bellows
