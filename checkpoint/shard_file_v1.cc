// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/shard_file_v1.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>

#include "checkpoint/block_reader.h"
#include "checkpoint/hdf5_file.h"

namespace bellows {
namespace {

using hdf5::Hid;

constexpr std::uint32_t kMostType = 12;

bool read_attribute(hid_t object, const char* name, std::uint64_t* values, hssize_t count) {
  Hid attribute(H5Aopen(object, name, H5P_DEFAULT), H5Aclose);
  if (!attribute) return false;
  Hid space(H5Aget_space(attribute.get()), H5Sclose);
  return H5Sget_simple_extent_npoints(space.get()) == count &&
         H5Aread(attribute.get(), H5T_NATIVE_UINT64, values) >= 0;
}

std::uint32_t dtype_of(hid_t dataset) {
  Hid type(H5Dget_type(dataset), H5Tclose);
  for (std::uint32_t dtype = 1; dtype <= kMostType; ++dtype) {
    Hid known = hdf5::file_type(dtype);
    if (H5Tequal(type.get(), known.get()) > 0) return dtype;
  }
  return 0;
}

// The dataset's own extent must agree with what its attributes say.
bool extent_fits(hid_t dataset, wire::Array* a) {
  Hid space(H5Dget_space(dataset), H5Sclose);
  const int ndims = H5Sget_simple_extent_ndims(space.get());
  if (ndims < 0 || ndims > static_cast<int>(wire::kMostDims)) return false;
  a->ndims = static_cast<std::uint32_t>(ndims);
  hsize_t dims[wire::kMostDims] = {};
  if (ndims > 0 && H5Sget_simple_extent_dims(space.get(), dims, nullptr) < 0) return false;
  if (!read_attribute(dataset, "global_shape", a->shape, ndims)) return false;
  a->count = ndims > 0 ? dims[0] : 1;
  for (int i = 1; i < ndims; ++i) {
    if (dims[i] != a->shape[i]) return false;
  }
  return true;
}

bool read_part(hid_t dataset, std::uint64_t file_bytes, StoredPart* out) {
  wire::Array& a = out->part.array;
  std::uint64_t layout = 2;
  a.dtype = dtype_of(dataset);
  if (!extent_fits(dataset, &a) || !read_attribute(dataset, "layout", &layout, 1) || layout > 1 ||
      !read_attribute(dataset, "first_row", &a.first, 1)) {
    return false;
  }
  a.layout = static_cast<std::uint32_t>(layout);
  if (!check_part(out->part)) return false;
  if (out->part.bytes() == 0) return true;
  out->offset = H5Dget_offset(dataset);
  return out->offset < file_bytes && out->part.bytes() <= file_bytes - out->offset;
}

struct Visit {
  ShardIndex* index;
  std::string bad;
  std::exception_ptr thrown;  ///< no exception must cross HDF5
};

herr_t visit_object(hid_t group, const char* name, const H5O_info_t* info, void* data) try {
  auto* visit = static_cast<Visit*>(data);
  if (info->type != H5O_TYPE_DATASET) return 0;
  Hid dataset(H5Dopen2(group, name, H5P_DEFAULT), H5Dclose);
  StoredPart stored;
  stored.part.name = name;
  if (!dataset || !read_part(dataset.get(), visit->index->size, &stored)) {
    visit->bad = name;
    return -1;
  }
  visit->index->arrays.push_back(std::move(stored));
  return 0;
} catch (...) {
  static_cast<Visit*>(data)->thrown = std::current_exception();
  return -1;
}

Status read_arrays(const std::string& path, ShardIndex* index) {
  hdf5::Turn turn;
  Hid access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  // Closed files need no lock, and some network file systems can't give one.
  H5Pset_file_locking(access.get(), false, true);
  Hid file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
  if (!file) return hdf5::error(ErrorKind::corrupt, "cannot be opened as HDF5", path);
  Hid group(H5Gopen2(file.get(), "/arrays", H5P_DEFAULT), H5Gclose);
  if (!group) return hdf5::error(ErrorKind::corrupt, "has no group arrays", path);
  Visit visit{index, "", nullptr};
  if (H5Ovisit(group.get(), H5_INDEX_NAME, H5_ITER_NATIVE, visit_object, &visit) >= 0) return {};
  if (visit.thrown) std::rethrow_exception(visit.thrown);
  return Error{ErrorKind::corrupt,
               fmt::format("{}: array {} is not described as it should be", path, visit.bad)};
}

// One pass gives the file's digest, to be compared, and those of its blocks, to hold what is read
// later against.
Status digest_file(const std::string& path, const ShardFile& shard, ShardIndex* index) {
  auto fd = open_shard(path, shard.size);
  if (!fd) return fd.error();
  Digest whole;
  std::vector<unsigned char> buffer(std::min(index->block, shard.size));
  for (std::uint64_t at = 0; at < shard.size; at += index->block) {
    const std::uint64_t bytes = std::min(index->block, shard.size - at);
    auto status = read_at(fd->get(), buffer.data(), bytes, at, path);
    if (!status) return status;
    whole.add(buffer.data(), bytes);
    index->digests.push_back(hash_of(buffer.data(), bytes));
  }
  const std::string found = whole.hex();
  if (found == shard.xxh3) return {};
  return Error{ErrorKind::corrupt,
               fmt::format("{} is damaged: its XXH3-128 is {}, the manifest says {}", path, found,
                           shard.xxh3)};
}

}  // namespace

Result<ShardIndex> read_shard_v1(const std::string& path, const Manifest& manifest,
                                 const ShardFile& shard) {
  ShardIndex index;
  index.step = manifest.step;
  index.rank = shard.rank;
  index.world = manifest.world;
  index.size = shard.size;
  auto status = digest_file(path, shard, &index);
  if (status) status = read_arrays(path, &index);
  if (!status) return status.error();
  return index;
}

}  // namespace bellows
