// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format/virtual_view.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "checkpoint/format/hdf5_file.h"
#include "checkpoint/format/manifest.h"

namespace bellows {
namespace {

using hdf5::Hid;

// HDF5 copies a dataset's list of pieces for each that is added: past this it takes too long.
constexpr std::size_t kMostPieces = 65536;

/// One piece of a dataset of the view: a dataset of a shard.
struct Source {
  const ShardIndex* shard;
  const wire::Array* array;
};

/// A dataset of the view, as wide as `shape` says.
struct View {
  std::string source_path;  ///< its name in the shards
  std::vector<Source> sources;

  const wire::Array& array() const { return *sources.front().array; }
};

/// By path in the view.
using Views = std::map<std::string, View>;

Views find_views(const std::vector<ShardIndex>& shards) {
  Views out;
  for (const ShardIndex& shard : shards) {
    for (const StoredPart& stored : shard.arrays) {
      const ArrayPart& part = stored.part;
      const bool per_rank = part.array.layout == wire::kPerRank;
      const std::string path = (per_rank ? "/per_rank/" : "/arrays/") + part.name;
      View& view = out[per_rank ? fmt::format("{}/{:05}", path, shard.rank) : path];
      view.source_path = path;
      view.sources.push_back({&shard, &part.array});
    }
  }
  return out;
}

std::string file_of(const Source& source) {
  return shard_name(source.shard->rank, source.shard->world);
}

Hid intermediate_groups() {
  Hid link(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(link.get(), 1);
  return link;
}

// HDF5 takes the name of a source for a format: %b is a number of blocks, and %% a percent sign.
std::string as_format(const std::string& name) {
  std::string out;
  for (char c : name) out.append(c == '%' ? 2 : 1, c);
  return out;
}

bool add_piece(hid_t create, hid_t space, const Source& source, const std::string& source_path) {
  const wire::Array& a = *source.array;
  hsize_t first[wire::kMostDims] = {}, count[wire::kMostDims] = {};
  std::copy_n(a.shape, a.ndims, count);
  first[a.axis] = a.first;
  count[a.axis] = a.count;
  if (std::count(count, count + a.ndims, 0u) > 0) return true;
  Hid from(H5Screate_simple(static_cast<int>(a.ndims), count, nullptr), H5Sclose);
  return H5Sselect_hyperslab(space, H5S_SELECT_SET, first, nullptr, count, nullptr) >= 0 &&
         H5Pset_virtual(create, space, file_of(source).c_str(), as_format(source_path).c_str(),
                        from.get()) >= 0;
}

bool add_dataset(hid_t file, const std::string& path, const View& view) {
  const wire::Array& a = view.array();
  Hid link = intermediate_groups();
  if (a.ndims == 0) {
    // HDF5 has no virtual scalars.
    return H5Lcreate_external(file_of(view.sources.front()).c_str(), view.source_path.c_str(), file,
                              path.c_str(), link.get(), H5P_DEFAULT) >= 0;
  }
  Hid space = hdf5::space_of(a.ndims, a.shape);
  Hid create(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  for (const Source& source : view.sources) {
    if (!add_piece(create.get(), space.get(), source, view.source_path)) return false;
  }
  H5Sselect_all(space.get());
  Hid type = hdf5::file_type(a.dtype);
  Hid dataset(H5Dcreate2(file, path.c_str(), type.get(), space.get(), link.get(), create.get(),
                         H5P_DEFAULT),
              H5Dclose);
  return static_cast<bool>(dataset);
}

Status fill(hid_t file, const std::vector<ShardIndex>& shards, const std::string& path) {
  const std::uint64_t facts[] = {2, shards.front().step, shards.front().world};
  const char* names[] = {"bellows_format", "step", "world"};
  for (int i = 0; i < 3; ++i) {
    if (!hdf5::write_attribute(file, names[i], &facts[i], 1)) {
      return hdf5::error(ErrorKind::internal, "cannot describe the file", path);
    }
  }
  if (auto status = hdf5::add_groups(file, path); !status) return status;
  for (const auto& [name, view] : find_views(shards)) {
    if (!add_dataset(file, name, view)) {
      return hdf5::error(ErrorKind::internal, fmt::format("cannot show {}", name), path);
    }
  }
  for (const StoredValue& value : shards.front().values) {
    if (auto status = hdf5::add_value(file, value, path); !status) return status;
  }
  return {};
}

Result<std::string> make_view(const std::vector<ShardIndex>& shards, const std::string& path) {
  auto memory = hdf5::MemoryFile::make(path);
  if (!memory) return memory.error();
  {
    hdf5::Turn turn;
    Hid file = hdf5::create_in_memory(memory->fd(), hdf5::Version::v110);
    if (!file) return hdf5::error(ErrorKind::internal, "cannot lay out the file", path);
    if (auto status = fill(file.get(), shards, path); !status) return status.error();
    if (!file.close()) return hdf5::error(ErrorKind::internal, "cannot close the file", path);
  }
  if (auto status = memory->map(path); !status) return status.error();
  return std::string(reinterpret_cast<const char*>(memory->data()), memory->size());
}

}  // namespace

Status write_virtual_view(FileOps& ops, const std::string& step_dir, const std::string& aside,
                          const std::vector<ShardIndex>& shards) {
  const std::string path = step_dir + "/whole.h5";
  std::size_t pieces = 0;
  for (const ShardIndex& shard : shards) pieces += shard.arrays.size();
  if (pieces > kMostPieces) {
    return Error{
        ErrorKind::unavailable,
        fmt::format(
            "{} is not created: the shards hold {} pieces of arrays, but it can show only {}", path,
            pieces, kMostPieces)};
  }
  auto view = make_view(shards, path);
  if (!view) return view.error();
  auto fd = ops.create(aside);
  if (!fd) return fd.error();
  auto status = ops.write_at(fd->get(), view->data(), view->size(), 0, aside);
  if (status) status = ops.sync(fd->get(), aside);
  if (status) status = ops.rename(aside, path);
  if (status) status = ops.sync_directory(step_dir);
  if (!status) (void)ops.remove_file(aside);
  return status;
}

}  // namespace bellows
