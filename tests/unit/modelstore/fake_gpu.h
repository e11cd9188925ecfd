// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "tests/unit/modelstore/model_store.h"
#include "tests/unit/support/fake_driver.h"

namespace bellows::model_test {

inline constexpr std::size_t kMega = 1 << 20;
/// What the driver gives at least.
inline constexpr std::uint64_t kSlab = 2 * kMega;
inline constexpr const char* kFirstGpu = "0000:3b:00.0";
inline constexpr const char* kSecondGpu = "0000:86:00.0";

/// The driver, and the memory of GPUs that processes have from it.
class FakeGpu : public FakeDriver {
 public:
  using FakeDriver::FakeDriver;

  /// What is wrong with the driver for bellows-model-gpu from now on.
  void set_faults(const std::string& lines) { set_faults_of("bellows-model-gpu", lines); }
  /// Memory of all GPUs that any process has, by inode.
  std::map<ino_t, std::uint64_t> allocations() const {
    std::map<ino_t, std::uint64_t> found;
    std::error_code gone;
    for (const auto& process : std::filesystem::directory_iterator("/proc", gone))
      add_allocations(process.path(), &found);
    return found;
  }
  bool is_held_by(pid_t process) const {
    std::map<ino_t, std::uint64_t> found;
    add_allocations("/proc/" + std::to_string(process), &found);
    return !found.empty();
  }
  std::uint64_t used() const {
    std::uint64_t bytes = 0;
    for (const auto& [inode, size] : allocations()) bytes += size;
    return bytes;
  }

 private:
  void add_allocations(const std::filesystem::path& process,
                       std::map<ino_t, std::uint64_t>* found) const {
    const std::string tag = "." + std::filesystem::path(directory()).filename().string();
    std::error_code gone;
    for (std::filesystem::directory_iterator fd(process / "fd", gone), end; !gone && fd != end;
         fd.increment(gone)) {
      const std::string link = std::filesystem::read_symlink(fd->path(), gone);
      struct stat s;
      const bool is_memory =
          link.starts_with("/memfd:gpu") ? has(link, tag) : link.starts_with(directory() + "/gpu");
      if (is_memory && stat(fd->path().c_str(), &s) == 0)
        (*found)[s.st_ino] = static_cast<std::uint64_t>(s.st_size);
    }
  }
};

/// A bellows-modeld for which GPUs have memory for models. Tenant a has both of them.
class GpuStore : public ModelStore {
 public:
  explicit GpuStore(const FakeGpu& gpu, const std::string& memory = "64M") : gpu_(gpu) {
    option("--gpu-driver=" + gpu.library());
    option("--gpu-memory=" + memory);
    gpus_of_a = std::string(kFirstGpu) + "+" + kSecondGpu;
  }

  /// Starts with one model, m, of these bytes, and loads the driver into this process.
  void lend(const std::string& data, const std::string& words = "tenant=a") {
    add("m", data, words);
    start();
    gpu_.load();
  }

  OpenModel open_on(int device, const std::string& name, const std::string& tenant = "a") {
    return {socket(tenant), name, 20000, device};
  }

 private:
  const FakeGpu& gpu_;
};

/// A job that SPANK has served.
class ServedJob {
 public:
  ServedJob(const ModelStore& store, const std::string& name, const std::string& tenant,
            const std::string& gpus)
      : name_(name), path_(store.path() + "/" + name + ".sock") {
    listen_at(path_, &listener_);
    const std::string refused = ControlClient(store).serve(name, tenant, listener_.get(), gpus);
    cr_assert_str_eq(refused.c_str(), "");
  }

  const std::string& socket() const { return path_; }
  OpenModel open_on(int device, const std::string& name) const {
    return {path_, name, 20000, device};
  }
  /// "" or the error.
  std::string end(const ModelStore& store) {
    unlink(path_.c_str());
    return ControlClient(store).end(name_);
  }

 private:
  std::string name_, path_;
  plain::Handle listener_;
};

}  // namespace bellows::model_test
