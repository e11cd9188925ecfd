// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/gpu_closes.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>

namespace bellows {

Result<std::unique_ptr<GpuCloses>> GpuCloses::make(EventLoop& loop, std::string program,
                                                   std::function<void(std::uint64_t)> closed) {
  std::unique_ptr<GpuCloses> made(new GpuCloses(loop, std::move(program), std::move(closed)));
  auto threads = LastClose::make(
      loop, [object = made.get()](std::uint64_t number) { object->closed_(number); });
  if (!threads) return threads.error();
  made->without_process_ = std::move(*threads);
  return made;
}

void GpuCloses::close(Fd memory, std::uint64_t number) {
  if (!start(memory, number)) return without_process_->close(std::move(memory), number);
  // The process has it too, and waits for the end of its output.
  memory.reset();
  closing_.at(number).child.close_out();
}

Status GpuCloses::start(const Fd& memory, std::uint64_t number) {
  ChildOptions options;
  options.command = {program_, "--close"};
  options.in_fd = memory.get();
  options.pipe_out = true;
  options.death_signal = SIGKILL;
  auto child = Child::start(options);
  if (!child) return child.error();
  Closing closing(std::move(*child));
  closing.process.reset(static_cast<int>(syscall(SYS_pidfd_open, closing.child.pid(), 0)));
  if (!closing.process) return errno_error("watch", program_);
  auto watch = loop_.watch(closing.process.get(), EPOLLIN,
                           [this, number](std::uint32_t) { on_exit(number); });
  if (!watch) return watch.error();
  closing.watch = std::move(*watch);
  closing_.emplace(number, std::move(closing));
  return {};
}

void GpuCloses::on_exit(std::uint64_t number) {
  const auto found = closing_.find(number);
  if (found == closing_.end() || !found->second.child.poll_exit()) return;
  closing_.erase(found);
  closed_(number);
}

}  // namespace bellows
