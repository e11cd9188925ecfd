// SPDX-License-Identifier: Apache-2.0
#include "modelstore/driver/cuda_driver.h"

#include <string.h>

namespace bellows::cuda {

Driver driver_of(void* const (&found)[kFunctionCount]) {
  Driver driver;
  // POSIX has it that a pointer to an object holds one to a function.
  memcpy(static_cast<void*>(&driver), found, sizeof driver);
  return driver;
}

const char* error_name(const Driver& driver, int error) {
  const char* name = nullptr;
  return driver.get_error_name(error, &name) == kSuccess && name ? name : "an unknown error";
}

int Mapping::map(const Driver& driver, Allocation allocation, std::size_t bytes, Device device,
                 int access) {
  reset();
  driver_ = &driver;
  int error = driver.reserve(&memory_, bytes, 0, 0, 0);
  if (error != kSuccess) return error;
  bytes_ = bytes;
  error = driver.map(memory_, bytes, 0, allocation, 0);
  mapped_ = error == kSuccess;
  const Allowed allowed = {{1, device}, access};
  if (mapped_) error = driver.set_access(memory_, bytes, &allowed, 1);
  if (error != kSuccess) reset();
  return error;
}

void Mapping::reset() {
  if (mapped_) (void)driver_->unmap(memory_, bytes_);
  if (bytes_ > 0) (void)driver_->give_back(memory_, bytes_);
  mapped_ = false;
  bytes_ = 0;
  memory_ = 0;
}

}  // namespace bellows::cuda
