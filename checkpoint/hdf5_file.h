// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <mutex>
#include <string>

#include "checkpoint/wire.h"
#include "common/result.h"

// What the files that use HDF5 share.
namespace bellows::hdf5 {

/// Owns an HDF5 identifier.
class Hid {
 public:
  using Close = herr_t (*)(hid_t);
  Hid(hid_t id, Close how) : id_(id), close_(how) {}
  Hid(Hid&& other) noexcept : id_(other.id_), close_(other.close_) { other.id_ = -1; }
  Hid(const Hid&) = delete;
  Hid& operator=(const Hid&) = delete;
  ~Hid() { close(); }
  bool close() {
    hid_t id = id_;
    id_ = -1;
    return id < 0 || close_(id) >= 0;
  }
  hid_t get() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }

 private:
  hid_t id_;
  Close close_;
};

/// To be held while HDF5 is used: it keeps its state for the whole process, and only some builds of
/// it lock that by themselves.
class Turn {
 public:
  Turn();

 private:
  std::lock_guard<std::mutex> lock_;
};

/// The sentence with the innermost cause that HDF5 noted.
Error error(ErrorKind kind, const std::string& what, const std::string& path);

/// How elements of a wire::Array's type are stored; invalid: no such type.
Hid file_type(std::uint32_t dtype);

/// The extents, or those of a scalar.
Hid space_of(std::uint32_t ndims, const std::uint64_t* extents);

bool write_attribute(hid_t object, const char* name, const std::uint64_t* values, hsize_t count);

/// A file with nothing in it, laid out in the memory file `fd`. Closing it writes it there.
Hid create_in_memory(int fd);

}  // namespace bellows::hdf5
