// SPDX-License-Identifier: Apache-2.0
#include "modelstore/gpu/gpu_slab.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "modelstore/digest/tree_digest.h"

namespace bellows {
namespace {

constexpr unsigned kMostLanes = 8;
/// Of a lane's memory: what a copy of less would cost is its start.
constexpr std::uint64_t kPieceLeaves = 4;
constexpr std::uint64_t kPiece = kPieceLeaves * kLeafBytes;

/// A stream of a GPU, and memory of the host that it reads and writes by itself. A resource.
class Lane {
 public:
  explicit Lane(const Gpu& gpu) : gpu_(gpu), current_(gpu.driver(), gpu.context()) {}
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane() {
    if (stream_) (void)gpu_.driver().copying.end_stream(stream_);
    if (buffer_) (void)gpu_.driver().copying.free_host_memory(buffer_);
  }

  Status start() {
    const cuda::Driver& driver = gpu_.driver();
    int code = current_.error();
    if (code == cuda::kSuccess) code = driver.copying.get_host_memory(&buffer_, kPiece, 0);
    if (code == cuda::kSuccess)
      code = driver.copying.make_stream(&stream_, cuda::kStreamNonBlocking);
    if (code != cuda::kSuccess) return gpu_.error("prepare copies", code);
    // What the driver gives anew may have a model's bytes, and must not pass for a copy of them.
    std::memset(buffer_, 0x5a, kPiece);
    return {};
  }
  Status copy_in(cuda::DeviceMemory to, const unsigned char* from, std::uint64_t bytes) {
    std::memcpy(buffer_, from, bytes);
    return finish(gpu_.driver().copying.copy_to_device(to, buffer_, bytes, stream_), "copy to it");
  }
  /// To data().
  Status copy_out(cuda::DeviceMemory from, std::uint64_t bytes) {
    return finish(gpu_.driver().copying.copy_to_host(buffer_, from, bytes, stream_),
                  "copy from it");
  }
  const char* data() const { return static_cast<const char*>(buffer_); }

 private:
  Status finish(int code, const char* what) {
    if (code == cuda::kSuccess) code = gpu_.driver().copying.await_stream(stream_);
    return code == cuda::kSuccess ? Status() : Status(gpu_.error(what, code));
  }

  const Gpu& gpu_;
  cuda::Current current_;
  void* stream_ = nullptr;
  void* buffer_ = nullptr;
};

/// What is done with one piece, which begins at a multiple of kPiece.
using PieceWork = std::function<Status(Lane& lane, std::uint64_t begin, std::uint64_t bytes)>;

class LaneWork {
 public:
  LaneWork(const Gpu& gpu, std::uint64_t bytes, const PieceWork& work,
           const GpuSlab::Progress& progress)
      : gpu_(gpu), bytes_(bytes), work_(work), progress_(progress) {}

  Status run() {
    const std::uint64_t pieces = (bytes_ + kPiece - 1) / kPiece;
    const auto lanes = static_cast<unsigned>(std::clamp<std::uint64_t>(
        pieces, 1, std::clamp(std::thread::hardware_concurrency(), 1u, kMostLanes)));
    std::vector<std::thread> others;
    try {
      for (unsigned i = 1; i < lanes; ++i) others.emplace_back([this] { work_in_lane(); });
    } catch (const std::system_error&) {
      // Fewer do.
    }
    work_in_lane();
    for (std::thread& other : others) other.join();
    return error_ ? Status(*error_) : Status();
  }

 private:
  void work_in_lane() {
    Lane lane(gpu_);
    Status status = lane.start();
    while (status.ok()) {
      const std::uint64_t begin = next_.fetch_add(kPiece);
      if (begin >= bytes_) return;
      const std::uint64_t bytes = std::min(kPiece, bytes_ - begin);
      status = work_(lane, begin, bytes);
      if (status.ok()) progress_(bytes);
    }
    next_ = bytes_;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!error_) error_ = status.error();
  }

  const Gpu& gpu_;
  const std::uint64_t bytes_;
  const PieceWork& work_;
  const GpuSlab::Progress& progress_;
  std::atomic<std::uint64_t> next_{0};
  std::mutex mutex_;
  std::optional<Error> error_;
};

}  // namespace

Result<std::unique_ptr<Gpu>> Gpu::open(const std::string& library, const std::string& address) {
  std::unique_ptr<Gpu> gpu(new Gpu);
  gpu->address_ = address;
  gpu->library_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!gpu->library_)
    return Error{ErrorKind::unavailable,
                 fmt::format("this node has no driver of NVIDIA's: {}", dlerror())};
  void* found[cuda::kFunctionCount];
  for (std::size_t i = 0; i < cuda::kFunctionCount; ++i) {
    found[i] = dlsym(gpu->library_, cuda::kFunctions[i]);
    if (!found[i])
      return Error{ErrorKind::unavailable,
                   fmt::format("the driver of this node is too old: {} has no {}", library,
                               cuda::kFunctions[i])};
  }
  gpu->driver_ = cuda::driver_of(found);
  if (auto started = gpu->start(); !started) return started.error();
  return gpu;
}

Status Gpu::start() {
  if (const int code = driver_.init(0)) return error("start the driver", code);
  const int code = driver_.get_device_at(&device_, address_.c_str());
  if (code == cuda::kInvalidDevice || code == cuda::kNoDevice)
    return Error{ErrorKind::not_found, fmt::format("the driver has no GPU {}", address_)};
  if (code != cuda::kSuccess) return error("find it", code);
  if (is_part())
    return Error{ErrorKind::invalid,
                 fmt::format("GPU {} is divided (MIG): it can't have models", address_)};
  int can_export = 0;
  if (const int failed = driver_.get_attribute(&can_export, cuda::kCanExportDescriptors, device_))
    return error("ask for its abilities", failed);
  if (!can_export)
    return Error{ErrorKind::invalid,
                 fmt::format("GPU {} cannot lend memory by a descriptor", address_)};
  if (const int failed = driver_.retain_context(&context_, device_))
    return error("make a context", failed);
  return {};
}

/// The second function, which CUDA has since 11.4, gives the identity of the part where the first
/// one gives that of the GPU.
bool Gpu::is_part() const {
  using GetIdentity = int (*)(void* out, cuda::Device device);
  const auto of_gpu = reinterpret_cast<GetIdentity>(dlsym(library_, "cuDeviceGetUuid"));
  const auto of_part = reinterpret_cast<GetIdentity>(dlsym(library_, "cuDeviceGetUuid_v2"));
  std::array<unsigned char, 16> gpu{}, part{};
  return of_gpu && of_part && of_gpu(gpu.data(), device_) == cuda::kSuccess &&
         of_part(part.data(), device_) == cuda::kSuccess && gpu != part;
}

Gpu::~Gpu() {
  if (context_) (void)driver_.release_context(device_);
  // The library stays: its threads may not have ended.
}

Error Gpu::error(const std::string& what, int code) const {
  return Error{ErrorKind::unavailable, fmt::format("GPU {}: the driver cannot {}: {}", address_,
                                                   what, cuda::error_name(driver_, code))};
}

Error Gpu::no_room(std::uint64_t bytes) const {
  std::size_t free = 0, all = 0;
  (void)driver_.get_free(&free, &all);
  return Error{ErrorKind::busy,
               fmt::format("GPU {} has no room for the {} bytes of the model: {} of its {} are "
                           "free",
                           address_, bytes, free, all)};
}

Result<std::unique_ptr<GpuSlab>> GpuSlab::make(const Gpu& gpu, std::uint64_t bytes) {
  std::unique_ptr<GpuSlab> slab(new GpuSlab(gpu));
  cuda::AllocationProperties properties;
  properties.location.id = gpu.device();
  std::size_t unit = 0;
  int code = gpu.driver().get_granularity(&unit, &properties, cuda::kSmallestGranularity);
  if (code != cuda::kSuccess || unit == 0) return gpu.error("say how it divides memory", code);
  slab->size_ = (bytes + unit - 1) / unit * unit;
  code = gpu.driver().create(&slab->allocation_, slab->size_, &properties, 0);
  if (code == cuda::kOutOfMemory) return gpu.no_room(bytes);
  if (code != cuda::kSuccess) return gpu.error("make memory", code);
  slab->made_ = true;
  code = slab->mapping_.map(gpu.driver(), slab->allocation_, slab->size_, gpu.device(),
                            cuda::kReadAndWrite);
  if (code == cuda::kOutOfMemory) return gpu.no_room(bytes);
  if (code != cuda::kSuccess) return gpu.error("map memory", code);
  return slab;
}

GpuSlab::~GpuSlab() {
  mapping_.reset();
  if (made_) (void)gpu_.driver().release(allocation_);
}

Status GpuSlab::fill(const unsigned char* from, std::uint64_t bytes, const Progress& progress) {
  const PieceWork copy = [&](Lane& lane, std::uint64_t begin, std::uint64_t count) {
    return lane.copy_in(mapping_.memory() + begin, from + begin, count);
  };
  return LaneWork(gpu_, bytes, copy, progress).run();
}

Result<ModelDigest> GpuSlab::digest(std::uint64_t bytes, const Progress& progress) const {
  std::vector<ModelDigest> leaves(leaf_count(bytes));
  const PieceWork read = [&](Lane& lane, std::uint64_t begin, std::uint64_t count) -> Status {
    if (auto copied = lane.copy_out(mapping_.memory() + begin, count); !copied) return copied;
    auto hasher = TreeHasher::make();
    if (!hasher) return hasher.error();
    for (std::uint64_t at = 0; at < count; at += kLeafBytes) {
      auto leaf = hasher->leaf({lane.data() + at, std::min(kLeafBytes, count - at)});
      if (!leaf) return leaf.error();
      leaves[(begin + at) / kLeafBytes] = *leaf;
    }
    return {};
  };
  if (auto done = LaneWork(gpu_, bytes, read, progress).run(); !done) return done.error();
  auto hasher = TreeHasher::make();
  if (!hasher) return hasher.error();
  return hasher->root(std::move(leaves), bytes);
}

Result<Fd> GpuSlab::to_descriptor() const {
  int fd = -1;
  const int code = gpu_.driver().export_allocation(&fd, allocation_, cuda::kDescriptor, 0);
  if (code != cuda::kSuccess || fd < 0) return gpu_.error("export memory", code);
  return Fd(fd);
}

}  // namespace bellows
