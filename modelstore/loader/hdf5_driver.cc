// SPDX-License-Identifier: Apache-2.0
#include "modelstore/loader/hdf5_driver.h"

#include <algorithm>
#include <new>
#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

namespace bellows {
namespace {

constexpr haddr_t kMostAddress = INT64_MAX;

/// What HDF5 takes for an open file of ours. The first member is HDF5's own.
struct DriverFile {
  H5FD_t head;
  const SourceFile* file;
  haddr_t allocated;
};

/// The one file that may be opened now. HDF5 asks a driver for a file by its name, also for one
/// that a link, or a dataset, in a file names.
thread_local const SourceFile* to_open = nullptr;

H5FD_t* open_file_of_driver(const char*, unsigned flags, hid_t, haddr_t) {
  const SourceFile* file = to_open;
  to_open = nullptr;
  if (!file || (flags & (H5F_ACC_RDWR | H5F_ACC_TRUNC | H5F_ACC_CREAT))) return nullptr;
  auto* out = new (std::nothrow) DriverFile{};
  if (out) out->file = file;
  return out ? &out->head : nullptr;
}

DriverFile& of(H5FD_t* file) { return *reinterpret_cast<DriverFile*>(file); }
const DriverFile& of(const H5FD_t* file) { return *reinterpret_cast<const DriverFile*>(file); }

herr_t close_file(H5FD_t* file) {
  delete &of(file);
  return 0;
}

int compare(const H5FD_t* a, const H5FD_t* b) { return a < b ? -1 : a > b; }

haddr_t allocated(const H5FD_t* file, H5FD_mem_t) { return of(file).allocated; }

herr_t set_allocated(H5FD_t* file, H5FD_mem_t, haddr_t to) {
  of(file).allocated = to;
  return 0;
}

haddr_t size_of_file(const H5FD_t* file, H5FD_mem_t) { return of(file).file->size(); }

/// HDF5 asks for more than there is, and wants zeros there.
herr_t read_file_of_driver(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t at, size_t bytes, void* to) {
  const SourceFile& source = *of(file).file;
  auto* begin = static_cast<unsigned char*>(to);
  const std::uint64_t there = at < source.size() ? source.size() - at : 0;
  const std::uint64_t has = std::min<std::uint64_t>(bytes, there);
  try {
    if (has > 0 && !source.read(begin, has, at)) return -1;
  } catch (...) {
    return -1;
  }
  std::fill(begin + has, begin + bytes, static_cast<unsigned char>(0));
  return 0;
}

herr_t refuse_to_write(H5FD_t*, H5FD_mem_t, hid_t, haddr_t, size_t, const void*) { return -1; }

H5FD_class_t make_driver() {
  H5FD_class_t driver = {};
#if H5_VERSION_GE(1, 13, 0)
  driver.version = H5FD_CLASS_VERSION;
  driver.value = static_cast<H5FD_class_value_t>(600);
#endif
  driver.name = "bellows";
  driver.maxaddr = kMostAddress;
  driver.fc_degree = H5F_CLOSE_STRONG;
  driver.open = open_file_of_driver;
  driver.close = close_file;
  driver.cmp = compare;
  driver.get_eoa = allocated;
  driver.set_eoa = set_allocated;
  driver.get_eof = size_of_file;
  driver.read = read_file_of_driver;
  driver.write = refuse_to_write;
  std::fill(std::begin(driver.fl_map), std::end(driver.fl_map), H5FD_MEM_SUPER);
  return driver;
}

}  // namespace

hdf5::Hid open_hdf5(const SourceFile& file) {
  static const H5FD_class_t driver = make_driver();
  // No filter is loaded from anywhere.
  H5PLset_loading_state(0);
  const hdf5::Hid id(H5FDregister(&driver), H5FDunregister);
  const hdf5::Hid access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  if (!id || H5Pset_driver(access.get(), id.get(), nullptr) < 0) return {-1, H5Fclose};
  to_open = &file;
  hdf5::Hid opened(H5Fopen("model", H5F_ACC_RDONLY, access.get()), H5Fclose);
  to_open = nullptr;
  return opened;
}

}  // namespace bellows
