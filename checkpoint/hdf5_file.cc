// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hdf5_file.h"

#include <fmt/format.h>

namespace bellows::hdf5 {
namespace {

std::mutex mutex;

herr_t take_innermost(unsigned n, const H5E_error2_t* error, void* text) {
  if (n == 0 && error->desc && *error->desc) *static_cast<std::string*>(text) = error->desc;
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

Hid bytes_type() {
  Hid type(H5Tcreate(H5T_OPAQUE, 1), H5Tclose);
  return H5Tset_tag(type.get(), "bytes") < 0 ? Hid(-1, H5Tclose) : std::move(type);
}

}  // namespace

Turn::Turn() : lock_(mutex) {
  H5dont_atexit();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Error error(ErrorKind kind, const std::string& what, const std::string& path) {
  std::string cause = "no cause given";
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_innermost, &cause);
  return Error{kind, fmt::format("{}: {} (HDF5: {})", path, what, cause)};
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
      return bytes_type();
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

Hid create_in_memory(int fd) {
  const std::string name = fmt::format("/proc/self/fd/{}", fd);
  Hid access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  // The default driver resolves names to real paths, which a memory file doesn't have.
  H5Pset_fapl_stdio(access.get());
  H5Pset_alignment(access.get(), wire::kLargeBytes, 4096);
  return Hid(H5Fcreate(name.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose);
}

}  // namespace bellows::hdf5
