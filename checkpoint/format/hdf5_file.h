// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <mutex>
#include <string>

#include "checkpoint/format/index.h"
#include "common/fd.h"
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

/// The groups every file has: arrays, per_rank and values.
Status add_groups(hid_t file, const std::string& path);

/// An attribute of the group values.
Status add_value(hid_t file, const StoredValue& value, const std::string& path);

/// A file in memory, sparse, for HDF5 to lay out: so it never meets a full or failing disk, which
/// it does not survive well. Owns the mapping.
class MemoryFile {
 public:
  static Result<MemoryFile> make(const std::string& path);
  MemoryFile(MemoryFile&& other) noexcept;
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile();
  /// Once HDF5 has closed it; the other functions but fd() only after this, fd() only before.
  Status map(const std::string& path);
  int fd() const { return fd_.get(); }
  const unsigned char* data() const { return static_cast<const unsigned char*>(data_); }
  std::uint64_t size() const { return size_; }

 private:
  explicit MemoryFile(Fd fd) : fd_(std::move(fd)) {}

  Fd fd_;
  void* data_ = nullptr;
  std::uint64_t size_ = 0;
};

/// The oldest HDF5 that can read a file.
enum class Version { v18, v110 };

/// A file with nothing in it, in a memory file.
Hid create_in_memory(int fd, Version version);

}  // namespace bellows::hdf5
