// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/shard_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <hdf5.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <mutex>

#include "checkpoint/digest.h"

namespace bellows {
namespace {

constexpr std::uint64_t kChunk = 4 << 20;
constexpr std::uint32_t kMostType = 12;

// HDF5 keeps its state for the whole process; only some builds of it lock that by themselves.
std::mutex hdf5_mutex;

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

void begin_hdf5() {
  H5dont_atexit();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

herr_t take_description(unsigned, const H5E_error2_t* error, void* text) {
  if (error->desc && *error->desc) *static_cast<std::string*>(text) = error->desc;
  return 0;
}

// The innermost cause HDF5 noted.
Error hdf5_error(ErrorKind kind, const std::string& what, const std::string& path) {
  std::string cause = "no cause given";
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned n, const H5E_error2_t* e, void* t) -> herr_t {
        return n == 0 ? take_description(n, e, t) : 0;
      },
      &cause);
  return Error{kind, fmt::format("{}: {} (HDF5: {})", path, what, cause)};
}

Hid file_type(std::uint32_t dtype) {
  const hid_t plain[] = {-1,
                         -1,
                         -1,
                         H5T_IEEE_F32LE,
                         H5T_IEEE_F64LE,
                         H5T_STD_I8LE,
                         H5T_STD_I16LE,
                         H5T_STD_I32LE,
                         H5T_STD_I64LE,
                         H5T_STD_U8LE,
                         H5T_STD_U16LE,
                         H5T_STD_U32LE,
                         H5T_STD_U64LE};
  if (dtype >= 3) return Hid(H5Tcopy(plain[dtype]), H5Tclose);
  Hid half(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
  const bool brain = dtype == 2;
  if (H5Tset_fields(half.get(), 15, brain ? 7 : 10, brain ? 8 : 5, 0, brain ? 7 : 10) < 0 ||
      H5Tset_size(half.get(), 2) < 0 || H5Tset_ebias(half.get(), brain ? 127 : 15) < 0) {
    return Hid(-1, H5Tclose);
  }
  return half;
}

bool write_attribute(hid_t object, const char* name, const std::uint64_t* values, hsize_t count) {
  Hid space(H5Screate_simple(1, &count, nullptr), H5Sclose);
  Hid attribute(H5Acreate2(object, name, H5T_STD_U64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT),
                H5Aclose);
  return attribute && H5Awrite(attribute.get(), H5T_NATIVE_UINT64, values) >= 0;
}

bool write_attribute(hid_t object, const char* name, const std::string& text) {
  Hid type(H5Tcopy(H5T_C_S1), H5Tclose);
  if (H5Tset_size(type.get(), text.size()) < 0 || H5Tset_strpad(type.get(), H5T_STR_NULLPAD) < 0) {
    return false;
  }
  Hid space(H5Screate(H5S_SCALAR), H5Sclose);
  Hid attribute(H5Acreate2(object, name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT),
                H5Aclose);
  return attribute && H5Awrite(attribute.get(), type.get(), text.data()) >= 0;
}

bool describe_part(hid_t dataset, const ArrayPart& part, const std::string& xxh3) {
  const wire::Array& a = part.array;
  const std::uint64_t layout = a.layout;
  return write_attribute(dataset, "layout", &layout, 1) &&
         write_attribute(dataset, "first_row", &a.first, 1) &&
         write_attribute(dataset, "global_shape", a.shape, a.ndims) &&
         write_attribute(dataset, "xxh3", xxh3);
}

// Lays the dataset out; its bytes are written later, past HDF5.
Result<std::uint64_t> create_dataset(hid_t file, const ArrayPart& part, const std::string& xxh3,
                                     const std::string& path) {
  const wire::Array& a = part.array;
  hsize_t dims[wire::kMostDims];
  std::copy_n(a.shape, a.ndims, dims);
  if (a.ndims > 0) dims[a.axis] = a.count;
  Hid space(a.ndims > 0 ? H5Screate_simple(static_cast<int>(a.ndims), dims, nullptr)
                        : H5Screate(H5S_SCALAR),
            H5Sclose);
  Hid create(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_layout(create.get(), H5D_CONTIGUOUS);
  H5Pset_alloc_time(create.get(), H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(create.get(), H5D_FILL_TIME_NEVER);
  Hid link(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(link.get(), 1);
  Hid type = file_type(a.dtype);
  const std::string name = "/arrays/" + part.name;
  Hid dataset(H5Dcreate2(file, name.c_str(), type.get(), space.get(), link.get(), create.get(),
                         H5P_DEFAULT),
              H5Dclose);
  if (!dataset || !describe_part(dataset.get(), part, xxh3)) {
    return hdf5_error(ErrorKind::invalid, fmt::format("cannot add array {}", part.name), path);
  }
  const haddr_t offset = H5Dget_offset(dataset.get());
  if (part.bytes() == 0) return std::uint64_t{0};
  if (offset == HADDR_UNDEF) {
    return hdf5_error(ErrorKind::internal, fmt::format("array {} has no place", part.name), path);
  }
  return static_cast<std::uint64_t>(offset);
}

struct Piece {
  std::uint64_t offset;
  std::uint64_t bytes;
  const unsigned char* data;
};

/// The HDF5 file without the arrays' bytes: a sparse file in memory, so that HDF5 never meets a
/// full or failing disk, which it does not survive well.
struct Skeleton {
  Fd memory;
  std::uint64_t size = 0;
  std::vector<Piece> pieces;  ///< ascending
};

Status fill_skeleton(hid_t file, const Snapshot& s, const std::string& path, Skeleton* out) {
  const std::uint64_t facts[] = {1, s.step, s.rank, s.world};
  const char* names[] = {"bellows_format", "step", "rank", "world"};
  for (int i = 0; i < 4; ++i) {
    if (!write_attribute(file, names[i], &facts[i], 1)) {
      return hdf5_error(ErrorKind::internal, "cannot describe the file", path);
    }
  }
  Hid group(H5Gcreate2(file, "/arrays", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose);
  if (!group) return hdf5_error(ErrorKind::internal, "cannot add the group arrays", path);
  for (std::size_t i = 0; i < s.parts.size(); ++i) {
    const std::uint64_t bytes = s.parts[i].bytes();
    const unsigned char* data = s.data + s.offsets[i];
    const std::string_view view(reinterpret_cast<const char*>(data), bytes);
    auto offset = create_dataset(file, s.parts[i], digest_of(bytes ? view : ""), path);
    if (!offset) return offset.error();
    if (bytes > 0) out->pieces.push_back({*offset, bytes, data});
  }
  return {};
}

Result<Skeleton> make_skeleton(const Snapshot& snapshot, const std::string& path) {
  Skeleton out;
  out.memory = Fd(memfd_create("bellows-shard", MFD_CLOEXEC));
  if (!out.memory) return errno_error("make a memory file for", path);
  const std::string name = fmt::format("/proc/self/fd/{}", out.memory.get());
  std::lock_guard lock(hdf5_mutex);
  begin_hdf5();
  Hid access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  // The default driver resolves names to real paths, which a memory file doesn't have.
  H5Pset_fapl_stdio(access.get());
  H5Pset_alignment(access.get(), 65536, 4096);
  Hid file(H5Fcreate(name.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose);
  if (!file) return hdf5_error(ErrorKind::internal, "cannot lay out the file", path);
  if (auto status = fill_skeleton(file.get(), snapshot, path, &out); !status) return status.error();
  if (!file.close()) return hdf5_error(ErrorKind::internal, "cannot close the layout", path);
  struct stat s;
  if (fstat(out.memory.get(), &s) < 0) return errno_error("look at the layout of", path);
  out.size = static_cast<std::uint64_t>(s.st_size);
  std::sort(out.pieces.begin(), out.pieces.end(),
            [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
  return out;
}

/// Writes a file from its beginning to its end and digests what it writes: what the caller holds in
/// memory, not what a disk gives back.
class Stream {
 public:
  Stream(FileOps& ops, int fd, const std::string& path, const std::atomic<bool>& cancelled)
      : ops_(ops), fd_(fd), path_(path), cancelled_(cancelled) {}

  Status put(const unsigned char* data, std::uint64_t bytes) {
    while (bytes > 0) {
      if (cancelled_) return Error{ErrorKind::unavailable, path_ + ": writing was called off"};
      const std::uint64_t now = std::min(bytes, kChunk);
      digest_.add(data, now);
      if (auto status = ops_.write_at(fd_, data, now, at_, path_); !status) return status;
      // Begins the disk's work now, so that the fsync at the end has less to wait for.
      sync_file_range(fd_, static_cast<off_t>(at_), static_cast<off_t>(now), SYNC_FILE_RANGE_WRITE);
      data += now;
      at_ += now;
      bytes -= now;
    }
    return {};
  }
  /// Copies the skeleton's own bytes up to `end`.
  Status copy_to(std::uint64_t end, int skeleton) {
    std::vector<unsigned char> chunk(std::min(end - at_, kChunk));
    while (at_ < end) {
      const std::uint64_t now = std::min<std::uint64_t>(end - at_, chunk.size());
      const ssize_t got = pread(skeleton, chunk.data(), now, static_cast<off_t>(at_));
      if (got <= 0) return errno_error("read the layout of", path_);
      if (auto status = put(chunk.data(), static_cast<std::uint64_t>(got)); !status) return status;
    }
    return {};
  }
  std::string digest() const { return digest_.hex(); }

 private:
  FileOps& ops_;
  int fd_;
  const std::string& path_;
  const std::atomic<bool>& cancelled_;
  Digest digest_;
  std::uint64_t at_ = 0;
};

Result<ShardFile> write_file(FileOps& ops, const std::string& path, const Skeleton& skeleton,
                             const std::atomic<bool>& cancelled) {
  auto fd = ops.create(path);
  if (!fd) return fd.error();
  Stream stream(ops, fd->get(), path, cancelled);
  for (const Piece& piece : skeleton.pieces) {
    auto status = stream.copy_to(piece.offset, skeleton.memory.get());
    if (status) status = stream.put(piece.data, piece.bytes);
    if (!status) return status.error();
  }
  auto status = stream.copy_to(skeleton.size, skeleton.memory.get());
  if (status) status = ops.sync(fd->get(), path);
  if (!status) return status.error();
  ShardFile out;
  out.file = std::filesystem::path(path).filename();
  out.size = skeleton.size;
  out.xxh3 = stream.digest();
  return out;
}

bool read_attribute(hid_t object, const char* name, std::uint64_t* values, hssize_t count) {
  Hid attribute(H5Aopen(object, name, H5P_DEFAULT), H5Aclose);
  if (!attribute) return false;
  Hid space(H5Aget_space(attribute.get()), H5Sclose);
  return H5Sget_simple_extent_npoints(space.get()) == count &&
         H5Aread(attribute.get(), H5T_NATIVE_UINT64, values) >= 0;
}

bool read_digest(hid_t object, std::string* out) {
  Hid attribute(H5Aopen(object, "xxh3", H5P_DEFAULT), H5Aclose);
  if (!attribute) return false;
  Hid type(H5Aget_type(attribute.get()), H5Tclose);
  if (H5Tget_class(type.get()) != H5T_STRING || H5Tis_variable_str(type.get()) > 0 ||
      H5Tget_size(type.get()) != 32) {
    return false;
  }
  Hid space(H5Aget_space(attribute.get()), H5Sclose);
  if (H5Sget_simple_extent_npoints(space.get()) != 1) return false;
  out->assign(32, 0);
  return H5Aread(attribute.get(), type.get(), out->data()) >= 0 && is_digest(*out);
}

std::uint32_t dtype_of(hid_t dataset) {
  Hid type(H5Dget_type(dataset), H5Tclose);
  for (std::uint32_t dtype = 1; dtype <= kMostType; ++dtype) {
    Hid known = file_type(dtype);
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

bool read_part(hid_t dataset, StoredPart* out) {
  wire::Array& a = out->part.array;
  std::uint64_t layout = 2;
  a.dtype = dtype_of(dataset);
  if (!extent_fits(dataset, &a) || !read_attribute(dataset, "layout", &layout, 1) || layout > 1 ||
      !read_attribute(dataset, "first_row", &a.first, 1) || !read_digest(dataset, &out->xxh3)) {
    return false;
  }
  a.layout = static_cast<std::uint32_t>(layout);
  if (!check_stored_part(out->part)) return false;
  const haddr_t offset = H5Dget_offset(dataset);
  if (offset == HADDR_UNDEF && out->part.bytes() > 0) return false;
  out->offset = out->part.bytes() > 0 ? offset : 0;
  return true;
}

struct Visit {
  std::vector<StoredPart> parts;
  std::string bad;
};

herr_t visit_object(hid_t group, const char* name, const H5O_info_t* info, void* data) {
  auto* visit = static_cast<Visit*>(data);
  if (info->type != H5O_TYPE_DATASET) return 0;
  Hid dataset(H5Dopen2(group, name, H5P_DEFAULT), H5Dclose);
  StoredPart part;
  part.part.name = name;
  if (!dataset || !read_part(dataset.get(), &part)) {
    visit->bad = name;
    return -1;
  }
  visit->parts.push_back(std::move(part));
  return 0;
}

}  // namespace

Result<ShardFile> write_shard(FileOps& ops, const std::string& path, const Snapshot& snapshot,
                              const std::atomic<bool>& cancelled) {
  auto skeleton = make_skeleton(snapshot, path);
  if (!skeleton) return skeleton.error();
  auto written = write_file(ops, path, *skeleton, cancelled);
  if (!written) {
    (void)ops.remove_file(path);
    return written.error();
  }
  written->rank = snapshot.rank;
  return written;
}

Result<std::vector<StoredPart>> read_shard_index(const std::string& path) {
  std::lock_guard lock(hdf5_mutex);
  begin_hdf5();
  Hid access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  // Closed files need no lock, and some network file systems can't give one.
  H5Pset_file_locking(access.get(), false, true);
  Hid file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
  if (!file) return hdf5_error(ErrorKind::corrupt, "cannot be opened as HDF5", path);
  Hid group(H5Gopen2(file.get(), "/arrays", H5P_DEFAULT), H5Gclose);
  if (!group) return hdf5_error(ErrorKind::corrupt, "has no group arrays", path);
  Visit visit;
  if (H5Ovisit(group.get(), H5_INDEX_NAME, H5_ITER_NATIVE, visit_object, &visit) < 0) {
    return Error{ErrorKind::corrupt,
                 fmt::format("{}: array {} is not described as it should be", path, visit.bad)};
  }
  return std::move(visit.parts);
}

}  // namespace bellows
