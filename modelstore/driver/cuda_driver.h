// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

/// The part of NVIDIA's driver that lends memory of a GPU to other processes, by the functions of
/// libcuda.so.1 that a process finds at run time. Numbers and structures are those of cuda.h, which
/// has kept them since CUDA 10.2. Included by libbellows_model: nothing here may need libstdc++.
namespace bellows::cuda {

using Device = int;
using DeviceMemory = unsigned long long;  ///< CUdeviceptr
using Allocation = unsigned long long;    ///< CUmemGenericAllocationHandle

/// Of functions.
inline constexpr int kSuccess = 0;
inline constexpr int kOutOfMemory = 2;
inline constexpr int kNoDevice = 100;
inline constexpr int kInvalidDevice = 101;

inline constexpr int kCanExportDescriptors = 103;  ///< an attribute of a device
inline constexpr int kDescriptor = 1;              ///< how an allocation is exported
inline constexpr int kSmallestGranularity = 0;
inline constexpr int kReadOnly = 1;
inline constexpr int kReadAndWrite = 3;
inline constexpr unsigned kStreamNonBlocking = 1;

struct Location {
  int type = 1;  ///< a device
  Device id = 0;
};

/// CUmemAllocationProp
struct AllocationProperties {
  int type = 1;  ///< pinned
  int handle_types = kDescriptor;
  Location location;
  void* of_windows = nullptr;
  unsigned char flags[8] = {};
};

/// CUmemAccessDesc
struct Allowed {
  Location location;
  int flags = kReadOnly;
};

static_assert(sizeof(AllocationProperties) == 32 && sizeof(Allowed) == 12);

/// Copies between the host and a device.
struct Copying {
  int (*get_host_memory)(void** out, std::size_t bytes, unsigned flags);
  int (*free_host_memory)(void* memory);
  int (*make_stream)(void** out, unsigned flags);
  int (*end_stream)(void* stream);
  int (*await_stream)(void* stream);
  int (*copy_to_device)(DeviceMemory to, const void* from, std::size_t bytes, void* stream);
  int (*copy_to_host)(void* to, DeviceMemory from, std::size_t bytes, void* stream);
};

/// Its functions, in the order of kFunctions. Each gives kSuccess or an error's number.
struct Driver {
  int (*init)(unsigned flags);
  int (*get_device)(Device* out, int ordinal);
  int (*get_device_at)(Device* out, const char* address);
  int (*get_address)(char* out, int bytes, Device device);
  int (*get_attribute)(int* out, int attribute, Device device);
  int (*get_free)(std::size_t* free, std::size_t* all);
  int (*get_error_name)(int error, const char** out);
  int (*retain_context)(void** out, Device device);
  int (*release_context)(Device device);
  int (*push_context)(void* context);
  int (*pop_context)(void** out);
  int (*synchronize)();
  int (*get_granularity)(std::size_t* out, const AllocationProperties* properties, int option);
  int (*create)(Allocation* out, std::size_t bytes, const AllocationProperties* properties,
                unsigned long long flags);
  int (*release)(Allocation allocation);
  int (*export_allocation)(void* out, Allocation allocation, int how, unsigned long long flags);
  int (*import_allocation)(Allocation* out, void* descriptor, int how);
  int (*reserve)(DeviceMemory* out, std::size_t bytes, std::size_t alignment, DeviceMemory wanted,
                 unsigned long long flags);
  int (*give_back)(DeviceMemory memory, std::size_t bytes);
  int (*map)(DeviceMemory memory, std::size_t bytes, std::size_t offset, Allocation allocation,
             unsigned long long flags);
  int (*unmap)(DeviceMemory memory, std::size_t bytes);
  int (*set_access)(DeviceMemory memory, std::size_t bytes, const Allowed* access,
                    std::size_t count);
  Copying copying;
};

inline constexpr const char* kFunctions[] = {"cuInit",
                                             "cuDeviceGet",
                                             "cuDeviceGetByPCIBusId",
                                             "cuDeviceGetPCIBusId",
                                             "cuDeviceGetAttribute",
                                             "cuMemGetInfo_v2",
                                             "cuGetErrorName",
                                             "cuDevicePrimaryCtxRetain",
                                             "cuDevicePrimaryCtxRelease_v2",
                                             "cuCtxPushCurrent_v2",
                                             "cuCtxPopCurrent_v2",
                                             "cuCtxSynchronize",
                                             "cuMemGetAllocationGranularity",
                                             "cuMemCreate",
                                             "cuMemRelease",
                                             "cuMemExportToShareableHandle",
                                             "cuMemImportFromShareableHandle",
                                             "cuMemAddressReserve",
                                             "cuMemAddressFree",
                                             "cuMemMap",
                                             "cuMemUnmap",
                                             "cuMemSetAccess",
                                             "cuMemHostAlloc",
                                             "cuMemFreeHost",
                                             "cuStreamCreate",
                                             "cuStreamDestroy_v2",
                                             "cuStreamSynchronize",
                                             "cuMemcpyHtoDAsync_v2",
                                             "cuMemcpyDtoHAsync_v2"};
inline constexpr std::size_t kFunctionCount = sizeof kFunctions / sizeof *kFunctions;
static_assert(sizeof(Driver) == kFunctionCount * sizeof(void*));

/// `found`: the addresses of kFunctions.
Driver driver_of(void* const (&found)[kFunctionCount]);

/// "CUDA_ERROR_OUT_OF_MEMORY", of a driver that is initialized.
const char* error_name(const Driver& driver, int error);

/// The device's primary context, which this thread uses as long as this lives.
class Current {
 public:
  Current(const Driver& driver, void* context)
      : driver_(driver), error_(driver.push_context(context)) {}
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current() {
    void* context;
    if (error_ == kSuccess) (void)driver_.pop_context(&context);
  }
  int error() const { return error_; }

 private:
  const Driver& driver_;
  int error_;
};

/// Owns a mapping of an allocation in this process's addresses of the GPU. To be used and ended
/// with the device's context.
class Mapping {
 public:
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { reset(); }

  /// All of it. `access`: kReadOnly or kReadAndWrite. The driver outlives this object; the
  /// allocation may be released.
  int map(const Driver& driver, Allocation allocation, std::size_t bytes, Device device,
          int access);
  void reset();
  /// Leaves it to the process that this one was forked from: the driver is of no use here.
  void forget() { bytes_ = 0, memory_ = 0, mapped_ = false; }
  DeviceMemory memory() const { return memory_; }

 private:
  const Driver* driver_ = nullptr;
  DeviceMemory memory_ = 0;
  std::size_t bytes_ = 0;
  bool mapped_ = false;
};

}  // namespace bellows::cuda
