// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format/shard_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "checkpoint/format/block_writer.h"
#include "checkpoint/format/hdf5_file.h"
#include "checkpoint/format/index.h"

namespace bellows {
namespace {

using hdf5::Hid;
using hdf5::MemoryFile;

bool describe_part(hid_t dataset, const wire::Array& a) {
  const std::uint64_t layout = a.layout, axis = a.axis;
  return hdf5::write_attribute(dataset, "layout", &layout, 1) &&
         hdf5::write_attribute(dataset, "axis", &axis, 1) &&
         hdf5::write_attribute(dataset, "first", &a.first, 1) &&
         hdf5::write_attribute(dataset, "global_shape", a.shape, a.ndims);
}

Hid space_of_part(const wire::Array& a) {
  std::uint64_t extents[wire::kMostDims];
  std::copy_n(a.shape, wire::kMostDims, extents);
  extents[a.axis] = a.count;
  return hdf5::space_of(a.ndims, extents);
}

// Lays the dataset out; its bytes are written later, past HDF5.
Result<std::uint64_t> create_dataset(hid_t file, const ArrayPart& part, const std::string& path) {
  Hid space = space_of_part(part.array);
  Hid create(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_layout(create.get(), H5D_CONTIGUOUS);
  H5Pset_alloc_time(create.get(), H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(create.get(), H5D_FILL_TIME_NEVER);
  Hid link(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(link.get(), 1);
  Hid type = hdf5::file_type(part.array.dtype);
  const char* group = part.array.layout == wire::kPerRank ? "/per_rank/" : "/arrays/";
  Hid dataset(H5Dcreate2(file, (group + part.name).c_str(), type.get(), space.get(), link.get(),
                         create.get(), H5P_DEFAULT),
              H5Dclose);
  if (!dataset || !describe_part(dataset.get(), part.array)) {
    return hdf5::error(ErrorKind::invalid, fmt::format("cannot add array {}", part.name), path);
  }
  if (part.bytes() == 0) return std::uint64_t{0};
  const haddr_t offset = H5Dget_offset(dataset.get());
  if (offset == HADDR_UNDEF) {
    return hdf5::error(ErrorKind::internal, fmt::format("array {} has no place", part.name), path);
  }
  return static_cast<std::uint64_t>(offset);
}

Status begin_file(hid_t file, const Snapshot& s, const std::string& path) {
  const std::uint64_t facts[] = {2, s.step, s.rank, s.world};
  const char* names[] = {"bellows_format", "step", "rank", "world"};
  for (int i = 0; i < 4; ++i) {
    if (!hdf5::write_attribute(file, names[i], &facts[i], 1)) {
      return hdf5::error(ErrorKind::internal, "cannot describe the file", path);
    }
  }
  return hdf5::add_groups(file, path);
}

/// The index of the file, and where its bytes come from: the arrays only, ascending.
struct Layout {
  ShardIndex index;
  std::vector<FilePiece> pieces;
};

Status fill_skeleton(hid_t file, const Snapshot& s, const std::string& path, Layout* out) {
  if (auto status = begin_file(file, s, path); !status) return status;
  for (std::size_t i = 0; i < s.parts.size(); ++i) {
    const ArrayPart& part = s.parts[i];
    const unsigned char* data = s.data + s.offsets[i];
    const std::uint64_t bytes = part.bytes();
    if (part.array.layout == wire::kValue) {
      out->index.values.push_back({part, std::string(reinterpret_cast<const char*>(data), bytes)});
      auto status = hdf5::add_value(file, out->index.values.back(), path);
      if (!status) return status;
      continue;
    }
    auto offset = create_dataset(file, part, path);
    if (!offset) return offset.error();
    out->index.arrays.push_back({part, *offset});
    if (bytes > 0) out->pieces.push_back({*offset, bytes, data});
  }
  std::sort(out->pieces.begin(), out->pieces.end(),
            [](const FilePiece& a, const FilePiece& b) { return a.offset < b.offset; });
  return {};
}

// The file without the arrays' bytes.
Result<MemoryFile> lay_out(const Snapshot& snapshot, const std::string& path, Layout* out) {
  auto memory = MemoryFile::make(path);
  if (!memory) return memory;
  {
    hdf5::Turn turn;
    Hid file = hdf5::create_in_memory(memory->fd(), hdf5::Version::v18);
    if (!file) return hdf5::error(ErrorKind::internal, "cannot lay out the file", path);
    if (auto status = fill_skeleton(file.get(), snapshot, path, out); !status) {
      return status.error();
    }
    if (!file.close()) return hdf5::error(ErrorKind::internal, "cannot close the layout", path);
  }
  if (auto status = memory->map(path); !status) return status.error();
  return memory;
}

// Adds what is between the arrays.
std::vector<FilePiece> cover(const MemoryFile& skeleton, const std::vector<FilePiece>& arrays) {
  std::vector<FilePiece> out;
  std::uint64_t at = 0;
  const auto fill_to = [&](std::uint64_t end) {
    if (end > at) out.push_back({at, end - at, skeleton.data() + at});
  };
  for (const FilePiece& array : arrays) {
    fill_to(array.offset);
    out.push_back(array);
    at = array.offset + array.bytes;
  }
  fill_to(skeleton.size());
  return out;
}

std::string index_path(const std::string& path) {
  return std::filesystem::path(path).replace_extension(".index");
}

Status write_index(FileOps& ops, const std::string& path, const std::string& text) {
  auto fd = ops.create(path);
  if (!fd) return fd.error();
  auto status = ops.write_at(fd->get(), text.data(), text.size(), 0, path);
  return status ? ops.sync(fd->get(), path) : status;
}

Result<ShardFile> write_files(FileOps& ops, const std::string& path, const Snapshot& snapshot,
                              const std::atomic<bool>& cancelled, ShardCopy* copy) {
  Layout layout;
  auto skeleton = lay_out(snapshot, path, &layout);
  if (!skeleton) return skeleton.error();
  ShardIndex& index = layout.index;
  index.step = snapshot.step;
  index.rank = snapshot.rank;
  index.world = snapshot.world;
  index.size = skeleton->size();
  index.held = snapshot.held;
  std::vector<FilePiece> pieces = cover(*skeleton, layout.pieces);
  auto digests = write_blocks(ops, path, pieces, index.size, index.block, cancelled);
  if (!digests) return digests.error();
  index.digests = std::move(*digests);
  const std::string text = index.to_string(), beside = index_path(path);
  if (auto status = write_index(ops, beside, text); !status) return status.error();
  ShardFile out;
  out.rank = snapshot.rank;
  out.file = std::filesystem::path(path).filename();
  out.size = index.size;
  out.index = std::filesystem::path(beside).filename();
  out.index_size = text.size();
  out.index_xxh3 = digest_of(text);
  if (copy) {
    auto kept = std::make_shared<hdf5::MemoryFile>(std::move(*skeleton));
    *copy = {snapshot.step, out, std::move(pieces), std::move(kept), nullptr};
  }
  return out;
}

}  // namespace

Result<ShardFile> write_shard(FileOps& ops, const std::string& path, const Snapshot& snapshot,
                              const std::atomic<bool>& cancelled, ShardCopy* copy) {
  auto written = write_files(ops, path, snapshot, cancelled, copy);
  if (!written) (void)remove_shard(ops, path);
  return written;
}

Status remove_shard(FileOps& ops, const std::string& path) {
  auto status = ops.remove_file(index_path(path));
  auto removed = ops.remove_file(path);
  return status ? removed : status;
}

}  // namespace bellows
