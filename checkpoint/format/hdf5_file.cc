// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format/hdf5_file.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdio>
#include <utility>

namespace bellows::hdf5 {
namespace {

std::mutex mutex;

struct Cause {
  char text[256] = "no cause given";
};

// Allocates nothing: no exception must cross HDF5.
herr_t take_innermost(unsigned n, const H5E_error2_t* error, void* cause) {
  auto& text = static_cast<Cause*>(cause)->text;
  if (n == 0 && error->desc && *error->desc) std::snprintf(text, sizeof text, "%s", error->desc);
  return 0;
}

Hid half_type(bool brain) {
  Hid half(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
  if (H5Tset_fields(half.get(), 15, brain ? 7 : 10, brain ? 8 : 5, 0, brain ? 7 : 10) < 0 ||
      H5Tset_size(half.get(), 2) < 0 || H5Tset_ebias(half.get(), brain ? 127 : 15) < 0) {
    return Hid(-1, H5Tclose);
  }
  return half;
}

// Boolean and complex types are those that h5py and PyTables use.
Hid bool_type() {
  Hid type(H5Tenum_create(H5T_STD_I8LE), H5Tclose);
  const signed char no = 0, yes = 1;
  if (H5Tenum_insert(type.get(), "FALSE", &no) < 0 ||
      H5Tenum_insert(type.get(), "TRUE", &yes) < 0) {
    return Hid(-1, H5Tclose);
  }
  return type;
}

Hid complex_type(hid_t part) {
  const std::size_t bytes = H5Tget_size(part);
  Hid type(H5Tcreate(H5T_COMPOUND, 2 * bytes), H5Tclose);
  if (H5Tinsert(type.get(), "r", 0, part) < 0 || H5Tinsert(type.get(), "i", bytes, part) < 0) {
    return Hid(-1, H5Tclose);
  }
  return type;
}

}  // namespace

Turn::Turn() : lock_(mutex) {
  H5dont_atexit();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Error error(ErrorKind kind, const std::string& what, const std::string& path) {
  Cause cause;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_innermost, &cause);
  return Error{kind, fmt::format("{}: {} (HDF5: {})", path, what, cause.text)};
}

Hid file_type(std::uint32_t dtype) {
  const hid_t plain[] = {H5T_IEEE_F32LE, H5T_IEEE_F64LE, H5T_STD_I8LE, H5T_STD_I16LE,
                         H5T_STD_I32LE,  H5T_STD_I64LE,  H5T_STD_U8LE, H5T_STD_U16LE,
                         H5T_STD_U32LE,  H5T_STD_U64LE};
  switch (dtype) {
    case 0:
      return Hid(-1, H5Tclose);
    case 1:
    case 2:
      return half_type(dtype == 2);
    case 13:
      return bool_type();
    case 14:
      return complex_type(H5T_IEEE_F32LE);
    case 15:
      return complex_type(H5T_IEEE_F64LE);
    case 16:
      // With a tag h5py could not read it: HDF5 converts between opaque types of the same tag only,
      // and those of h5py have none.
      return Hid(H5Tcreate(H5T_OPAQUE, 1), H5Tclose);
    default:
      return Hid(dtype < 13 ? H5Tcopy(plain[dtype - 3]) : -1, H5Tclose);
  }
}

Hid space_of(std::uint32_t ndims, const std::uint64_t* extents) {
  hsize_t dims[wire::kMostDims] = {};
  for (std::uint32_t i = 0; i < ndims; ++i) dims[i] = extents[i];
  return Hid(
      ndims > 0 ? H5Screate_simple(static_cast<int>(ndims), dims, nullptr) : H5Screate(H5S_SCALAR),
      H5Sclose);
}

bool write_attribute(hid_t object, const char* name, const std::uint64_t* values, hsize_t count) {
  Hid space(H5Screate_simple(1, &count, nullptr), H5Sclose);
  Hid attribute(H5Acreate2(object, name, H5T_STD_U64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT),
                H5Aclose);
  return attribute && H5Awrite(attribute.get(), H5T_NATIVE_UINT64, values) >= 0;
}

Status add_groups(hid_t file, const std::string& path) {
  for (const char* name : {"/arrays", "/per_rank", "/values"}) {
    Hid group(H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose);
    if (!group) return error(ErrorKind::internal, "cannot add a group", path);
  }
  return {};
}

Status add_value(hid_t file, const StoredValue& value, const std::string& path) {
  const wire::Array& a = value.part.array;
  Hid group(H5Gopen2(file, "/values", H5P_DEFAULT), H5Gclose);
  Hid space = space_of(a.ndims, a.shape);
  Hid type = file_type(a.dtype);
  Hid attribute(H5Acreate2(group.get(), value.part.name.c_str(), type.get(), space.get(),
                           H5P_DEFAULT, H5P_DEFAULT),
                H5Aclose);
  if (attribute && H5Awrite(attribute.get(), type.get(), value.bytes.data()) >= 0) return {};
  return error(ErrorKind::invalid, fmt::format("cannot add value {}", value.part.name), path);
}

Result<MemoryFile> MemoryFile::make(const std::string& path) {
  Fd fd(memfd_create("bellows-hdf5", MFD_CLOEXEC));
  if (!fd) return errno_error("make a memory file for", path);
  return MemoryFile(std::move(fd));
}

MemoryFile::MemoryFile(MemoryFile&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MemoryFile::~MemoryFile() {
  if (data_) munmap(data_, size_);
}

Status MemoryFile::map(const std::string& path) {
  struct stat s;
  if (fstat(fd_.get(), &s) < 0) return errno_error("look at the layout of", path);
  size_ = static_cast<std::uint64_t>(s.st_size);
  void* data = mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd_.get(), 0);
  if (data == MAP_FAILED) return errno_error("map the layout of", path);
  data_ = data;
  fd_.reset();
  return {};
}

Hid create_in_memory(int fd, Version version) {
  const std::string name = fmt::format("/proc/self/fd/{}", fd);
  Hid access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  // The default driver resolves names to real paths, which a memory file doesn't have.
  H5Pset_fapl_stdio(access.get());
  H5Pset_alignment(access.get(), wire::kLargeBytes, 4096);
  if (version == Version::v110) {
    H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110);
  }
  return Hid(H5Fcreate(name.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose);
}

}  // namespace bellows::hdf5
