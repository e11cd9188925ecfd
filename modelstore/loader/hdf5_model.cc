// SPDX-License-Identifier: Apache-2.0
#include "modelstore/loader/hdf5_model.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/text.h"
#include "modelstore/loader/hdf5_driver.h"

namespace bellows {
namespace {

using catalogue::TensorType;
using hdf5::Hid;

/// Groups in groups: HDF5 goes down by recursion.
constexpr int kMostDepth = 64;
/// A chunk is in memory as a whole.
constexpr std::uint64_t kMostChunk = 256 << 20;
/// So much is read at a time, to say how far it is.
constexpr std::uint64_t kStride = 16 << 20;
/// Types that a model has, of enum bellows_dtype, are the first of those that file_type() knows.
constexpr auto kLastType = static_cast<std::uint32_t>(TensorType::c64);

bool is_plain_filter(H5Z_filter_t filter) {
  return filter == H5Z_FILTER_DEFLATE || filter == H5Z_FILTER_SHUFFLE ||
         filter == H5Z_FILTER_FLETCHER32;
}

/// Why a dataset's data are no plain part of the file, or null.
const char* wrong_with_storage(hid_t dataset, std::uint64_t element_bytes) {
  const Hid list(H5Dget_create_plist(dataset), H5Pclose);
  if (!list) return "HDF5 can't say how it is stored";
  const H5D_layout_t layout = H5Pget_layout(list.get());
  if (layout != H5D_CONTIGUOUS && layout != H5D_CHUNKED && layout != H5D_COMPACT)
    return "it is a virtual dataset, whose data are in other files";
  if (H5Pget_external_count(list.get()) != 0) return "its data are in other files";
  const int filters = H5Pget_nfilters(list.get());
  for (int i = 0; i < filters; ++i) {
    unsigned flags = 0, config = 0;
    std::size_t values = 0;
    if (!is_plain_filter(H5Pget_filter2(list.get(), static_cast<unsigned>(i), &flags, &values,
                                        nullptr, 0, nullptr, &config)))
      return "it has a filter other than deflate, shuffle and fletcher32";
  }
  if (layout != H5D_CHUNKED) return nullptr;
  hsize_t chunk[H5S_MAX_RANK] = {};
  const int dims = H5Pget_chunk(list.get(), H5S_MAX_RANK, chunk);
  std::uint64_t bytes = element_bytes;
  for (int i = 0; i < dims; ++i)
    if (__builtin_mul_overflow(bytes, chunk[i], &bytes) || bytes > kMostChunk)
      return "a chunk of it has more than 256 MiB";
  return nullptr;
}

std::uint32_t type_of(hid_t dataset) {
  const Hid type(H5Dget_type(dataset), H5Tclose);
  for (std::uint32_t i = 1; i <= kLastType; ++i)
    if (H5Tequal(type.get(), hdf5::file_type(i).get()) > 0) return i;
  return 0;
}

/// Why its shape can't be a tensor's, or null. Sets the tensor's shape.
const char* take_shape(hid_t dataset, FileTensor* tensor) {
  const Hid space(H5Dget_space(dataset), H5Sclose);
  const H5S_class_t kind = H5Sget_simple_extent_type(space.get());
  if (kind != H5S_SCALAR && kind != H5S_SIMPLE) return "it has no shape";
  const int dims = H5Sget_simple_extent_ndims(space.get());
  if (dims < 0 || dims > static_cast<int>(catalogue::kMostDims))
    return "it has too many dimensions";
  hsize_t shape[catalogue::kMostDims] = {};
  if (dims > 0 && H5Sget_simple_extent_dims(space.get(), shape, nullptr) != dims)
    return "it has no shape";
  tensor->shape.assign(shape, shape + dims);
  return nullptr;
}

/// Why it can be no tensor, or null.
const char* take_dataset(hid_t dataset, FileTensor* tensor) {
  const std::uint32_t type = type_of(dataset);
  if (type == 0) return "its type is none of a model: little-endian numbers, and booleans";
  tensor->type = static_cast<TensorType>(type);
  if (const char* wrong = take_shape(dataset, tensor)) return wrong;
  const auto dims = static_cast<std::uint32_t>(tensor->shape.size());
  if (!catalogue::tensor_bytes(type, tensor->shape.data(), dims, &tensor->bytes))
    return "it is too large";
  return wrong_with_storage(dataset, catalogue::element_bits(type) / 8);
}

/// Goes through all links of a file. No exception must cross HDF5.
class Visit {
 public:
  explicit Visit(std::vector<FileTensor>* tensors) : tensors_(tensors) {}
  static herr_t link(hid_t root, const char* name, const H5L_info_t* info, void* visit) {
    auto* self = static_cast<Visit*>(visit);
    try {
      const char* wrong = self->take(root, name, info->type);
      if (wrong) self->why_ = fmt::format("\"{}\": {}", one_line(name, 80), wrong);
      return wrong ? 1 : 0;
    } catch (...) {
      return -1;
    }
  }
  const std::string& why() const { return why_; }

 private:
  const char* take(hid_t root, std::string_view name, H5L_type_t type) {
    if (type == H5L_TYPE_EXTERNAL) return "it is a link to another file";
    if (type != H5L_TYPE_HARD) return "it is a link by name";
    if (name.size() > catalogue::kMostName) return "its name is too long";
    if (std::count(name.begin(), name.end(), '/') > kMostDepth) return "it lies in too many groups";
    const Hid object(H5Oopen(root, name.data(), H5P_DEFAULT), H5Oclose);
    if (!object) return "HDF5 can't open it";
    if (H5Iget_type(object.get()) != H5I_DATASET) return nullptr;
    if (tensors_->size() >= catalogue::kMostTensors) return "it is one dataset too many";
    FileTensor tensor;
    tensor.name = name;
    const char* wrong = take_dataset(object.get(), &tensor);
    if (!wrong) tensors_->push_back(std::move(tensor));
    return wrong;
  }

  std::vector<FileTensor>* tensors_;
  std::string why_;
};

/// How many rows of the first axis to read at a time: whole chunks, so that each is read once.
std::uint64_t rows_at_a_time(hid_t dataset, std::uint64_t row_bytes) {
  std::uint64_t rows = std::max<std::uint64_t>(kStride / std::max<std::uint64_t>(row_bytes, 1), 1);
  const Hid list(H5Dget_create_plist(dataset), H5Pclose);
  hsize_t chunk[H5S_MAX_RANK] = {};
  if (H5Pget_layout(list.get()) != H5D_CHUNKED ||
      H5Pget_chunk(list.get(), H5S_MAX_RANK, chunk) < 1 || chunk[0] == 0)
    return rows;
  return std::max<std::uint64_t>(rows / chunk[0], 1) * chunk[0];
}

/// What deflate makes of a few bytes has no other limit.
Status limit_memory(const std::string& name) {
#ifdef __SANITIZE_ADDRESS__
  // It has reserved far more for itself.
  (void)name;
#else
  const rlimit most = {Hdf5Model::kMostMemory, Hdf5Model::kMostMemory};
  if (setrlimit(RLIMIT_DATA, &most) < 0) return errno_error("limit the memory to read", name);
#endif
  return {};
}

}  // namespace

Result<Hdf5Model> Hdf5Model::open(const SourceFile& file) {
  if (auto limited = limit_memory(file.name()); !limited) return limited.error();
  const hdf5::Turn turn;
  Hid opened = open_hdf5(file);
  if (!opened) return hdf5::error(ErrorKind::corrupt, "it is no HDF5 file", file.name());
  Hdf5Model model(file.name(), std::move(opened));
  Visit visit(&model.tensors_);
  const herr_t ended =
      H5Lvisit(model.file_.get(), H5_INDEX_NAME, H5_ITER_NATIVE, Visit::link, &visit);
  if (!visit.why().empty())
    return Error{ErrorKind::corrupt, fmt::format("{}: {}", file.name(), visit.why())};
  if (ended < 0) return hdf5::error(ErrorKind::corrupt, "its groups can't be read", file.name());
  if (!model.tensors_.empty()) return model;
  return Error{ErrorKind::corrupt, file.name() + ": it has no dataset, so it is no model"};
}

Result<ModelLayout> Hdf5Model::lay_out() {
  auto layout = lay_out_tensors(&tensors_);
  if (layout) return layout;
  return Error{layout.error().kind, fmt::format("{}: {}", name_, layout.error().text)};
}

Status Hdf5Model::fill_one(const FileTensor& tensor, unsigned char* to,
                           const Progress& progress) const {
  const auto failed = [&] {
    return hdf5::error(ErrorKind::corrupt,
                       fmt::format("\"{}\" can't be read", one_line(tensor.name, 80)), name_);
  };
  const Hid dataset(H5Dopen2(file_.get(), tensor.name.c_str(), H5P_DEFAULT), H5Dclose);
  const Hid type = hdf5::file_type(static_cast<std::uint32_t>(tensor.type));
  if (!dataset) return failed();
  if (tensor.shape.empty())
    return H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, to) < 0 ? failed()
                                                                                     : Status();
  std::vector<hsize_t> begin(tensor.shape.size()), count(tensor.shape.begin(), tensor.shape.end());
  const std::uint64_t rows = tensor.shape[0], row_bytes = tensor.bytes / rows;
  const std::uint64_t most = rows_at_a_time(dataset.get(), row_bytes);
  for (; begin[0] < rows; begin[0] += count[0]) {
    count[0] = std::min<std::uint64_t>(most, rows - begin[0]);
    const auto dims = static_cast<int>(count.size());
    const Hid from(H5Dget_space(dataset.get()), H5Sclose);
    const Hid into(H5Screate_simple(dims, count.data(), nullptr), H5Sclose);
    // The file may be another by now: HDF5 holds what is selected in it against `into`.
    if (H5Sget_simple_extent_ndims(from.get()) != dims ||
        H5Sselect_hyperslab(from.get(), H5S_SELECT_SET, begin.data(), nullptr, count.data(),
                            nullptr) < 0 ||
        H5Dread(dataset.get(), type.get(), into.get(), from.get(), H5P_DEFAULT,
                to + begin[0] * row_bytes) < 0)
      return failed();
    progress(count[0] * row_bytes);
  }
  return {};
}

Status Hdf5Model::fill(unsigned char* memory, const Progress& progress) const {
  const hdf5::Turn turn;
  for (const FileTensor& tensor : tensors_)
    if (tensor.bytes > 0)
      if (auto filled = fill_one(tensor, memory + tensor.offset, progress); !filled) return filled;
  return {};
}

}  // namespace bellows
