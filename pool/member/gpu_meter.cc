// SPDX-License-Identifier: Apache-2.0
#include "pool/member/gpu_meter.h"

#include <dlfcn.h>

#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "common/text.h"

namespace bellows::pool {
namespace {

constexpr std::chrono::seconds kEach{1};
constexpr std::chrono::seconds kEndsWithin{2};
constexpr std::size_t kMostDevices = 64;
constexpr const char* kLibrary = "libnvidia-ml.so.1";

/// Of nvml.h, which keeps them as they are.
using Device = void*;
struct Utilization {
  unsigned gpu = 0;  ///< percent
  unsigned memory = 0;
};
constexpr int kSuccess = 0;

/// What is needed of the library.
class Nvml {
 public:
  /// Null: it is not there, or knows no GPU.
  static std::unique_ptr<Nvml> open(const std::string& library) {
    void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) return nullptr;
    // It is never closed: drivers leave threads behind.
    auto nvml = std::make_unique<Nvml>();
    int (*init)() = nullptr;
    const bool found = find(handle, "nvmlInit_v2", init) &&
                       find(handle, "nvmlDeviceGetHandleByIndex_v2", nvml->by_index_) &&
                       find(handle, "nvmlDeviceGetHandleByUUID", nvml->by_uuid_) &&
                       find(handle, "nvmlDeviceGetUtilizationRates", nvml->utilization_);
    if (!found || init() != kSuccess) return nullptr;
    return nvml;
  }

  /// "0", "GPU-8f2c..."; what the library does not know is nothing, as is a part of a GPU.
  std::optional<Device> find(const std::string& word) const {
    Device device = nullptr;
    const auto index = parse_uint(word);
    if (index && *index > kMostDevices) return std::nullopt;
    const int got =
        index ? by_index_(static_cast<unsigned>(*index), &device) : by_uuid_(word.c_str(), &device);
    return got == kSuccess ? std::optional(device) : std::nullopt;
  }

  std::optional<double> busy(Device device) const {
    Utilization found;
    if (utilization_(device, &found) != kSuccess || found.gpu > 100) return std::nullopt;
    return found.gpu / 100.0;
  }

 private:
  template <typename Function>
  static bool find(void* handle, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(handle, name));
    return function != nullptr;
  }

  int (*by_index_)(unsigned index, Device* out) = nullptr;
  int (*by_uuid_)(const char* uuid, Device* out) = nullptr;
  int (*utilization_)(Device device, Utilization* out) = nullptr;
};

/// Nothing: of one of them it is not known.
std::optional<double> mean_of(const Nvml& nvml, const std::vector<Device>& devices) {
  double sum = 0;
  for (Device device : devices) {
    const auto busy = nvml.busy(device);
    if (!busy) return std::nullopt;
    sum += *busy;
  }
  return sum / static_cast<double>(devices.size());
}

std::vector<Device> devices_in(const Nvml& nvml, const std::string& words) {
  std::vector<Device> devices;
  for (const std::string_view word : split(words, ',')) {
    const auto device = nvml.find(std::string(trim(word)));
    // As CUDA has it: what comes behind a wrong one is not visible.
    if (!device || devices.size() == kMostDevices) break;
    devices.push_back(*device);
  }
  return devices;
}

}  // namespace

struct GpuMeter::Shared {
  std::mutex mutex;
  std::condition_variable news;
  std::optional<Reading> reading;
  bool ends = false;
  bool ended = false;

  void run(const std::string& devices, const std::string& library) {
    read_until_end(devices, library);
    const std::lock_guard lock(mutex);
    ended = true;
    news.notify_all();
  }

 private:
  void read_until_end(const std::string& devices, const std::string& library) {
    const auto nvml = Nvml::open(library);
    if (!nvml) return;
    const auto own = devices_in(*nvml, devices);
    if (own.empty()) return;
    for (std::unique_lock lock(mutex); !ends; news.wait_for(lock, kEach)) {
      lock.unlock();
      const auto busy = mean_of(*nvml, own);
      lock.lock();
      if (busy) reading = Reading{*busy, Clock::now()};
    }
  }
};

GpuMeter::GpuMeter(const std::string& devices, const std::string& library)
    : shared_(std::make_shared<Shared>()) {
  shared_->ended = devices.empty();
  if (devices.empty()) return;
  std::thread([shared = shared_, devices, library] { shared->run(devices, library); }).detach();
}

GpuMeter::~GpuMeter() {
  std::unique_lock lock(shared_->mutex);
  shared_->ends = true;
  shared_->news.notify_all();
  // The library takes itself apart when the process ends, which a call under way would not outlive.
  shared_->news.wait_for(lock, kEndsWithin, [this] { return shared_->ended; });
}

std::unique_ptr<GpuMeter> GpuMeter::of_job() {
  const char* const devices = std::getenv("CUDA_VISIBLE_DEVICES");
  return std::make_unique<GpuMeter>(devices ? devices : "", kLibrary);
}

std::optional<GpuMeter::Reading> GpuMeter::take() {
  const std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->reading, std::nullopt);
}

}  // namespace bellows::pool
