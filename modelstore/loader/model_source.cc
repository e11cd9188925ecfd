// SPDX-License-Identifier: Apache-2.0
#include "modelstore/loader/model_source.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "common/fd.h"
#include "modelstore/digest/tree_digest.h"
#include "modelstore/loader/confine.h"
#include "modelstore/loader/local_file.h"
#include "modelstore/loader/remote_source.h"
#include "modelstore/loader/user_rights.h"

namespace bellows {
namespace {

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kFile = "model.safetensors";
constexpr const char* kManifest = "manifest.json";
constexpr std::string_view kIndexEnd = ".index.json";

unsigned char* bytes_of(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

bool is_index(std::string_view place) {
  return place.size() > kIndexEnd.size() && place.ends_with(kIndexEnd);
}

bool is_hdf5(std::string_view place) { return place.ends_with(".h5") || place.ends_with(".hdf5"); }

Error about(const Error& error, const std::string& name) {
  return Error{error.kind, fmt::format("{}: {}", name, error.text)};
}

bool is_there(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

/// All of a file that is to be parsed. corrupt: it is longer.
Result<std::string> read_text(const SourceFile& file, std::uint64_t most) {
  const std::uint64_t size = file.size();
  if (size > most)
    return Error{ErrorKind::corrupt, fmt::format("{} is longer than {} bytes", file.name(), most)};
  std::string text(static_cast<std::size_t>(size), '\0');
  if (auto read = file.read(bytes_of(text), size, 0); !read) return read.error();
  return text;
}

/// Of a file that the manifest names.
Error about_step(const Error& error) {
  if (error.kind != ErrorKind::not_found) return error;
  return Error{error.kind, error.text +
                               ": the checkpoint step is damaged, or is being removed. A step with "
                               "a name stays: see \"bellows ckpt name\""};
}

Result<std::string> beside(const std::string& index, const std::string& name) {
  return index.substr(0, index.rfind('/') + 1) + name;
}

}  // namespace

Status ModelSource::open_one(const std::string& place, const OpenFile& open) {
  auto file = open(place);
  if (!file) return file.error();
  files_.push_back(std::move(*file));
  return {};
}

Status ModelSource::open_indexed(const std::string& place, const OpenFile& open,
                                 const Sibling& sibling, const Progress& progress) {
  auto file = open(place);
  if (!file) return file.error();
  index_file_ = std::move(*file);
  const auto text = read_text(*index_file_, kMostIndex);
  if (!text) return text.error();
  auto index = parse_index(*text);
  if (!index) return about(index.error(), index_file_->name());
  index_ = std::move(*index);
  for (const std::string& each : index_->files) {
    const auto at = sibling(place, each);
    if (!at) return at.error();
    if (auto opened = open_one(*at, open); !opened) return opened;
    progress();
  }
  return {};
}

Status ModelSource::open_shard_of(const ShardFile& shard, const OpenFile& open) {
  if (auto opened = open_one(checkpoint_->path_of(shard.file), open); !opened) return opened;
  const SourceFile& file = *files_.back();
  if (file.size() != shard.size)
    return Error{ErrorKind::corrupt, fmt::format("{} has {} bytes, and its manifest says {}",
                                                 file.name(), file.size(), shard.size)};
  auto index = open(checkpoint_->path_of(shard.index));
  if (!index) return index.error();
  auto text = read_text(**index, kMostIndex);
  return text ? checkpoint_->add_index(std::move(*text)) : Status(text.error());
}

Status ModelSource::open_checkpoint(const std::string& folder, const OpenFile& open) {
  // A link to the step may lead to another one before all is opened.
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(folder.c_str(), nullptr),
                                                         std::free);
  if (!real) return errno_error("look at", folder);
  auto file = open(std::string(real.get()) + "/" + kManifest);
  if (!file) return file.error();
  index_file_ = std::move(*file);
  const auto text = read_text(*index_file_, kMostIndex);
  if (!text) return text.error();
  auto checkpoint = CheckpointModel::parse_manifest(real.get(), *text);
  if (!checkpoint) return checkpoint.error();
  checkpoint_ = std::move(*checkpoint);
  for (const ShardFile& shard : checkpoint_->shards())
    if (auto opened = open_shard_of(shard, open); !opened) return about_step(opened.error());
  return {};
}

Status ModelSource::open_folder(const std::string& path, const OpenFile& open) {
  struct stat s;
  if (stat(path.c_str(), &s) < 0) return errno_error("look at", path);
  std::string place = path;
  if (S_ISDIR(s.st_mode)) {
    const std::string index = path + "/" + kIndex;
    place = access(index.c_str(), F_OK) == 0 || errno != ENOENT ? index : path + "/" + kFile;
    if (place != index && !is_there(place) && is_there(path + "/" + kManifest))
      return open_checkpoint(path, open);
  }
  is_hdf5_ = is_hdf5(place);
  return is_index(place) ? open_indexed(place, open, beside, [] {}) : open_one(place, open);
}

Result<ModelSource> ModelSource::open(const std::string& path, uid_t uid) {
  ModelSource source;
  auto rights = UserRights::take(uid);
  if (!rights) return rights.error();
  // Not before: the user's groups may come from a directory service.
  if (auto given_up = give_up(GivenUp::network); !given_up) return given_up.error();
  if (auto opened = source.open_folder(path, LocalFile::open); !opened) return opened.error();
  return source;
}

Result<ModelSource> ModelSource::open_remote(const std::string& url, const std::string& settings,
                                             const Progress& progress) {
  const auto site = SiteSettings::read(settings);
  if (!site) return site.error();
  if (auto given_up = give_up(GivenUp::programs); !given_up) return given_up.error();
  if (auto dropped = drop_capabilities(); !dropped) return dropped.error();
  ModelSource source;
  const OpenFile open = [&](const std::string& at) { return open_remote_source(at, *site); };
  const bool indexed = is_index(std::string_view(url).substr(0, url.find_first_of("?#")));
  auto opened =
      indexed ? source.open_indexed(url, open, sibling_url, progress) : source.open_one(url, open);
  if (!opened) return opened.error();
  return source;
}

Result<ModelDigest> ModelSource::version() const {
  auto hasher = TreeHasher::make();
  if (!hasher) return hasher.error();
  // No text has a zero in it.
  std::string all = index_file_ ? index_file_->version() : "";
  for (const auto& file : files_) (all += '\0') += file->version();
  return hasher->leaf(all);
}

Status ModelSource::read_header(const SourceFile& file) {
  const std::string& name = file.name();
  unsigned char begin[kLengthBytes] = {};
  const auto first = std::min<std::uint64_t>(file.size(), kLengthBytes);
  if (auto read = file.read(begin, first, 0); !read) return read;
  const auto length = header_length({reinterpret_cast<const char*>(begin), first}, file.size());
  if (!length) return about(length.error(), name);
  std::string header(*length, '\0');
  if (auto read = file.read(bytes_of(header), *length, kLengthBytes); !read) return read;
  auto tensors = parse_header(header, file.size());
  if (!tensors) return about(tensors.error(), name);
  // Before all are there: one large header under many names would fill the memory.
  tensors_ += tensors->size();
  if (tensors_ > catalogue::kMostTensors)
    return Error{ErrorKind::corrupt,
                 fmt::format("{}: with the files before it, the model has more than {} tensors",
                             name, catalogue::kMostTensors)};
  headers_.push_back({name, file.size(), std::move(*tensors)});
  return {};
}

Status ModelSource::read_datasets() {
  auto model = Hdf5Model::open(*files_[0]);
  if (!model) return model.error();
  hdf5_.emplace(std::move(*model));
  auto layout = hdf5_->lay_out();
  if (!layout) return layout.error();
  layout_ = std::move(*layout);
  return {};
}

Status ModelSource::read_headers(const Progress& progress) {
  if (checkpoint_) {
    auto layout = checkpoint_->read_indexes(progress);
    if (!layout) return layout.error();
    layout_ = std::move(*layout);
    return {};
  }
  if (is_hdf5_) return read_datasets();
  for (const auto& file : files_) {
    if (auto read = read_header(*file); !read) return read;
    progress();
  }
  auto layout = lay_out_model(headers_, index_);
  if (!layout) return about(layout.error(), index_file_ ? index_file_->name() : files_[0]->name());
  layout_ = std::move(*layout);
  return {};
}

Status ModelSource::fill(unsigned char* memory, const bellows::Progress& progress) const {
  std::vector<ReadFile> files;
  for (const auto& file : files_)
    files.push_back([&file](unsigned char* to, std::uint64_t bytes, std::uint64_t offset) {
      return file->read(to, bytes, offset);
    });
  const Status filled =
      hdf5_ ? hdf5_->fill(memory, progress) : checkpoint_->fill(files, memory, progress);
  if (!filled) return filled;
  std::memcpy(memory + layout_.catalogue_at, layout_.catalogue.data(), layout_.catalogue.size());
  return {};
}

Status ModelSource::read(std::uint64_t begin, unsigned char* to, std::uint64_t bytes) const {
  const std::uint64_t end = begin + bytes;
  std::uint64_t at = begin;
  const auto zero_until = [&](std::uint64_t until) {
    std::memset(to + (at - begin), 0, until - at);
  };
  const auto& pieces = layout_.pieces;
  auto piece = std::partition_point(pieces.begin(), pieces.end(), [begin](const ModelPiece& p) {
    return p.to + p.bytes <= begin;
  });
  for (; piece != pieces.end() && piece->to < end; ++piece) {
    const std::uint64_t from = std::max(begin, piece->to);
    const std::uint64_t until = std::min(end, piece->to + piece->bytes);
    zero_until(from);
    at = until;
    if (auto read = files_[piece->file]->read(to + (from - begin), until - from,
                                              piece->from + (from - piece->to));
        !read)
      return read;
  }
  zero_until(end);
  const std::uint64_t catalogue_end = layout_.catalogue_at + layout_.catalogue.size();
  const std::uint64_t from = std::max(begin, layout_.catalogue_at);
  if (from < std::min(end, catalogue_end))
    std::memcpy(to + (from - begin), layout_.catalogue.data() + (from - layout_.catalogue_at),
                std::min(end, catalogue_end) - from);
  return {};
}

std::vector<plain::FileIdentity> ModelSource::identities() const {
  std::vector<plain::FileIdentity> all;
  for (const auto& file : files_)
    if (const auto identity = file->identity()) all.push_back(*identity);
  return all;
}

Status ModelSource::check_unchanged() const {
  for (const auto& file : files_)
    if (auto unchanged = file->check_unchanged(); !unchanged) return unchanged;
  return {};
}

}  // namespace bellows
