// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/metrics_file.h"

#include <sys/epoll.h>

#include <utility>

#include "common/fd.h"

namespace bellows {
namespace {

constexpr std::chrono::seconds kBetween{15};

}  // namespace

Result<std::unique_ptr<MetricsFile>> MetricsFile::make(EventLoop& loop, std::string path,
                                                       std::function<std::string()> text, Say say) {
  std::unique_ptr<MetricsFile> file(
      new MetricsFile(std::move(path), std::move(text), std::move(say)));
  auto worker = DiskWorker::make();
  if (!worker) return worker.error();
  file->worker_ = std::move(*worker);
  auto watch = loop.watch(file->worker_->event(), EPOLLIN,
                          [object = file.get()](std::uint32_t) { object->worker_->tell(); });
  if (!watch) return watch.error();
  file->watch_ = std::move(*watch);
  return file;
}

MetricsFile::Time MetricsFile::tick(Time now) {
  if (now < next_) return next_;
  next_ = now + kBetween;
  // One write that hangs is enough.
  if (!worker_->is_idle()) return next_;
  worker_->add([path = path_, text = text_()] { return replace_file(path, text, 0644); },
               [this](const Status& status) { written(status); });
  return next_;
}

void MetricsFile::written(const Status& status) {
  const std::string complaint = status ? "" : status.error().text;
  if (!complaint.empty() && complaint != complaint_) say_("the metrics: " + complaint);
  complaint_ = complaint;
}

}  // namespace bellows
