// SPDX-License-Identifier: Apache-2.0
#include "modelstore/format/model_layout.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "common/text.h"

namespace bellows {
namespace {

using catalogue::element_bits;

/// Of tensors that lie by themselves.
constexpr std::uint64_t kApart = 64;
/// Where there is no file whose order they keep, one of so many bytes begins at a page, so that a
/// disk can write to it directly.
constexpr std::uint64_t kLarge = 65536;

Error not_valid(const std::string& why) {
  return Error{ErrorKind::corrupt, "the model is not valid: " + why};
}

constexpr std::uint64_t rounded_up(std::uint64_t n, std::uint64_t to) {
  return (n + to - 1) / to * to;
}

Status check_size(std::uint64_t bytes) {
  if (bytes <= catalogue::kMostBytes) return {};
  return not_valid(fmt::format("its data have more than {} bytes", catalogue::kMostBytes));
}

std::uint64_t alignment(const FileTensor& t) {
  return std::max<std::uint64_t>(element_bits(static_cast<std::uint32_t>(t.type)) / 8, 1);
}

/// A tensor and where it lies in memory.
struct PlacedTensor {
  const FileTensor* tensor;
  std::uint64_t offset;
};

/// Gives files and tensors their places, one after the other.
class ModelPlacer {
 public:
  explicit ModelPlacer(const std::optional<TensorIndex>& index) : index_(index) {}

  Status add(std::uint32_t number, const ModelFile& file) {
    const auto& tensors = file.tensors;
    if (tensors.empty()) return {};
    const bool aligned = std::all_of(tensors.begin(), tensors.end(), [](const FileTensor& t) {
      return t.offset % alignment(t) == 0;
    });
    const std::uint64_t begin = tensors.front().offset;
    if (aligned) {
      // Where a block of the file is one of memory, a disk can write to it directly.
      const std::uint64_t at = rounded_up(end_, kModelPage) + begin % kModelPage;
      add_piece(number, begin, at, file.bytes - begin);
      for (const FileTensor& t : tensors) add_tensor(number, t, at + (t.offset - begin));
    } else {
      for (const FileTensor& t : tensors) {
        const std::uint64_t at = rounded_up(end_, kApart);
        add_piece(number, t.offset, at, t.bytes);
        add_tensor(number, t, at);
      }
    }
    return check_size(end_);
  }

  std::vector<ModelPiece>& pieces() { return pieces_; }
  std::vector<PlacedTensor>& tensors() { return tensors_; }
  std::uint64_t end() const { return end_; }

 private:
  void add_piece(std::uint32_t file, std::uint64_t from, std::uint64_t to, std::uint64_t bytes) {
    end_ = to + bytes;
    if (bytes > 0) pieces_.push_back({file, from, to, bytes});
  }
  void add_tensor(std::uint32_t number, const FileTensor& t, std::uint64_t at) {
    if (index_) {
      const auto found = index_->file_of.find(t.name);
      if (found == index_->file_of.end() || found->second != number) return;
    }
    tensors_.push_back({&t, at});
  }

  const std::optional<TensorIndex>& index_;
  std::vector<ModelPiece> pieces_;
  std::vector<PlacedTensor> tensors_;
  std::uint64_t end_ = 0;
};

void append(std::string& to, const void* from, std::size_t bytes) {
  to.append(static_cast<const char*>(from), bytes);
}

catalogue::Record record_of(const PlacedTensor& placed, std::uint32_t name) {
  const FileTensor& t = *placed.tensor;
  catalogue::Record record;
  record.name = name;
  record.name_length = static_cast<std::uint32_t>(t.name.size());
  record.type = static_cast<std::uint32_t>(t.type);
  record.dims = static_cast<std::uint32_t>(t.shape.size());
  std::copy(t.shape.begin(), t.shape.end(), record.shape);
  record.offset = placed.offset;
  record.bytes = t.bytes;
  return record;
}

/// `tensors` are in the order of their names.
std::string write_catalogue(const std::vector<PlacedTensor>& tensors, std::uint64_t data_bytes) {
  catalogue::Header header;
  header.tensors = static_cast<std::uint32_t>(tensors.size());
  header.data_bytes = data_bytes;
  std::string records, names;
  for (const PlacedTensor& placed : tensors) {
    const auto record = record_of(placed, static_cast<std::uint32_t>(names.size()));
    append(records, &record, sizeof record);
    append(names, placed.tensor->name.c_str(), placed.tensor->name.size() + 1);
  }
  header.name_bytes = static_cast<std::uint32_t>(names.size());
  std::string out;
  append(out, &header, sizeof header);
  return out + records + names;
}

Status check_names(const std::vector<PlacedTensor>& sorted,
                   const std::optional<TensorIndex>& index) {
  std::uint64_t name_bytes = 0;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const std::string& name = sorted[i].tensor->name;
    name_bytes += name.size() + 1;
    if (i > 0 && sorted[i - 1].tensor->name == name)
      return not_valid(fmt::format("two files have a tensor \"{}\"", one_line(name, 80)));
  }
  if (sorted.size() > catalogue::kMostTensors || name_bytes > UINT32_MAX)
    return not_valid(fmt::format("it has more than {} tensors, or names of more than 4 GiB",
                                 catalogue::kMostTensors));
  if (!index || sorted.size() == index->file_of.size()) return {};
  for (const auto& [name, file] : index->file_of) {
    const auto at = std::lower_bound(
        sorted.begin(), sorted.end(), name,
        [](const PlacedTensor& p, const std::string& n) { return p.tensor->name < n; });
    if (at == sorted.end() || at->tensor->name != name)
      return not_valid(fmt::format("its index says that tensor \"{}\" is in {}, and it is not",
                                   one_line(name, 80), one_line(index->files[file], 80)));
  }
  return {};
}

Result<ModelLayout> lay_out_catalogue(std::vector<PlacedTensor>& tensors, std::uint64_t end,
                                      const std::optional<TensorIndex>& index) {
  std::sort(tensors.begin(), tensors.end(), [](const PlacedTensor& a, const PlacedTensor& b) {
    return a.tensor->name < b.tensor->name;
  });
  if (auto checked = check_names(tensors, index); !checked) return checked.error();
  ModelLayout layout;
  layout.catalogue = write_catalogue(tensors, end);
  layout.catalogue_at = rounded_up(end, kModelPage);
  layout.bytes = rounded_up(layout.catalogue_at + layout.catalogue.size(), kModelPage);
  return layout;
}

}  // namespace

Result<ModelLayout> lay_out_model(const std::vector<ModelFile>& files,
                                  const std::optional<TensorIndex>& index) {
  ModelPlacer placer(index);
  for (std::size_t i = 0; i < files.size(); ++i)
    if (auto added = placer.add(static_cast<std::uint32_t>(i), files[i]); !added)
      return added.error();
  auto layout = lay_out_catalogue(placer.tensors(), placer.end(), index);
  if (layout) layout->pieces = std::move(placer.pieces());
  return layout;
}

Result<ModelLayout> lay_out_tensors(std::vector<FileTensor>* tensors) {
  std::sort(tensors->begin(), tensors->end(),
            [](const FileTensor& a, const FileTensor& b) { return a.name < b.name; });
  std::vector<PlacedTensor> placed;
  std::uint64_t end = 0;
  for (FileTensor& t : *tensors) {
    t.offset = rounded_up(end, t.bytes >= kLarge ? kModelPage : kApart);
    end = t.offset + t.bytes;
    if (auto checked = check_size(end); !checked) return checked.error();
    placed.push_back({&t, t.offset});
  }
  return lay_out_catalogue(placed, end, {});
}

}  // namespace bellows
