// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/client/cuda.h"

#include "common/plain/symbols.h"

namespace bellows::client {
namespace {

// As in the order of Cuda::Function.
constexpr const char* kNames[] = {"cudaGetDevice",
                                  "cudaSetDevice",
                                  "cudaDeviceSynchronize",
                                  "cudaPointerGetAttributes",
                                  "cudaHostRegister",
                                  "cudaHostUnregister",
                                  "cudaStreamCreateWithFlags",
                                  "cudaStreamSynchronize",
                                  "cudaStreamDestroy",
                                  "cudaMemcpyAsync",
                                  "cudaGetLastError",
                                  "cudaGetErrorString"};

// The runtime's numbers, which it has kept since version 10.
constexpr int kMemoryDevice = 2;
constexpr int kMemoryManaged = 3;
constexpr int kCopyDefault = 4;  ///< the runtime sees from the pointers which way
constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kHostRegisterPortable = 1;

/// struct cudaPointerAttributes, with room for what later versions append.
struct Attributes {
  int type = 0;
  int device = 0;
  void* pointers[2] = {};
  long more[32] = {};
};

}  // namespace

template <typename... Arguments>
int Cuda::call(Function function, Arguments... arguments) const {
  return reinterpret_cast<int (*)(Arguments...)>(functions_[function])(arguments...);
}

void Cuda::look() {
  static_assert(sizeof kNames / sizeof kNames[0] == kFunctions);
  void* found[kFunctions] = {};
  // PyTorch's wheels have it as libcudart-d0da41ae.so.11.0.
  if (loaded() || !plain::find_loaded("libcudart", kNames, kFunctions, found)) return;
  for (int i = 0; i < kFunctions; ++i) functions_[i] = found[i];
}

Cuda::~Cuda() {
  if (stream_) call(kStreamDestroy, stream_);
}

bool Cuda::is_device(const void* data, int* device) const {
  if (!data || !loaded()) return false;
  Attributes attributes;
  if (call(kPointerGetAttributes, &attributes, data) != 0) {
    // Old runtimes call ordinary memory an error, which must not surprise the program later.
    call(kGetLastError);
    return false;
  }
  *device = attributes.device;
  return attributes.type == kMemoryDevice || attributes.type == kMemoryManaged;
}

bool Cuda::register_host(void* buffer, std::size_t bytes) {
  if (call(kHostRegister, buffer, bytes, kHostRegisterPortable) == 0) return true;
  call(kGetLastError);
  return false;
}

void Cuda::release_host(void* buffer) {
  if (call(kHostUnregister, buffer) != 0) call(kGetLastError);
}

int Cuda::check(int code, const char* what, ErrorText* error) {
  if (code == 0) return BELLOWS_OK;
  call(kGetLastError);
  const char* why = reinterpret_cast<const char* (*)(int)>(functions_[kGetErrorString])(code);
  return error->set(BELLOWS_ERR_IO, "CUDA cannot %s: %s", what, why);
}

// Our stream does not wait for the program's: what these were asked must be done before.
int Cuda::settle(int device) {
  if (settled_ == device) return 0;
  int before = 0;
  int code = call(kGetDevice, &before);
  if (code == 0) code = call(kSetDevice, device);
  if (code == 0) code = call(kDeviceSynchronize);
  if (code == 0 && !stream_) code = call(kStreamCreateWithFlags, &stream_, kStreamNonBlocking);
  const int back = call(kSetDevice, before);
  if (code == 0) code = back;
  if (code == 0) settled_ = device;
  return code;
}

int Cuda::copy(void* to, const void* from, std::size_t bytes, int device, ErrorText* error) {
  int rc = check(settle(device), "wait for the device", error);
  if (rc == BELLOWS_OK) {
    copying_ = true;
    rc = check(call(kMemcpyAsync, to, from, bytes, kCopyDefault, stream_), "copy an array", error);
  }
  if (rc != BELLOWS_OK && wait_for_copies() != 0) call(kGetLastError);
  return rc;
}

// What the program asks of the device from now on is waited for the next time.
int Cuda::wait_for_copies() {
  settled_ = -1;
  if (!copying_) return 0;
  copying_ = false;
  return call(kStreamSynchronize, stream_);
}

int Cuda::finish(ErrorText* error) { return check(wait_for_copies(), "copy the arrays", error); }

}  // namespace bellows::client
