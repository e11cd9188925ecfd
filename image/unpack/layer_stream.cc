// SPDX-License-Identifier: Apache-2.0
#include "image/unpack/layer_stream.h"

#include <archive.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>

#include "common/text.h"

namespace bellows::image {
namespace {

constexpr std::size_t kBuffer = 256 * 1024;

}  // namespace

void LayerStream::Free::operator()(archive* a) const { ::archive_read_free(a); }

Status LayerStream::open() {
  auto file_hash = Sha256::begin();
  auto tar_hash = Sha256::begin();
  if (!file_hash || !tar_hash) return file_hash ? tar_hash.error() : file_hash.error();
  file_hash_ = *std::move(file_hash);
  tar_hash_ = *std::move(tar_hash);
  file_bytes_ = std::make_unique<char[]>(kBuffer);
  tar_bytes_ = std::make_unique<char[]>(kBuffer);
  packed_.reset(::archive_read_new());
  tar_.reset(::archive_read_new());
  if (!packed_ || !tar_) return Error{ErrorKind::io, "there is no memory to unpack a layer"};
  // Only what needs no other program: libarchive would start one for a form that it can't read.
  ::archive_read_support_filter_gzip(packed_.get());
  ::archive_read_support_filter_zstd(packed_.get());
  ::archive_read_support_format_raw(packed_.get());
  ::archive_read_support_format_empty(packed_.get());
  ::archive_read_support_format_tar(tar_.get());
  ::archive_read_support_format_empty(tar_.get());
  archive_entry* whole = nullptr;
  const bool opened =
      ::archive_read_open(packed_.get(), this, nullptr, read_file, nullptr) == ARCHIVE_OK;
  const int header = opened ? ::archive_read_next_header(packed_.get(), &whole) : ARCHIVE_FATAL;
  if (!opened || (header != ARCHIVE_OK && header != ARCHIVE_EOF)) return failure();
  if (::archive_read_open(tar_.get(), this, nullptr, read_packed, nullptr) != ARCHIVE_OK)
    return failure();
  return {};
}

long LayerStream::read_file(archive*, void* self, const void** data) {
  return static_cast<LayerStream*>(self)->next_of_file(data);
}

long LayerStream::read_packed(archive*, void* self, const void** data) {
  return static_cast<LayerStream*>(self)->next_of_tar(data);
}

long LayerStream::next_of_file(const void** data) {
  ssize_t n;
  do {
    n = ::read(layer_.file.get(), file_bytes_.get(), kBuffer);
  } while (n < 0 && errno == EINTR);
  if (n < 0)
    problem_ = errno_error("read", "a layer");
  else
    problem_ = file_hash_.add(file_bytes_.get(), static_cast<std::size_t>(n));
  *data = file_bytes_.get();
  return problem_ ? n : -1;
}

long LayerStream::next_of_tar(const void** data) {
  const auto n = ::archive_read_data(packed_.get(), tar_bytes_.get(), kBuffer);
  if (n < 0) return -1;
  tally_.bytes += static_cast<std::uint64_t>(n);
  if (tally_.bytes > limits_.bytes)
    problem_ = Error{
        ErrorKind::invalid,
        fmt::format("the image has more than {} bytes, the most that is allowed", limits_.bytes)};
  else
    problem_ = tar_hash_.add(tar_bytes_.get(), static_cast<std::size_t>(n));
  *data = tar_bytes_.get();
  return problem_ ? n : -1;
}

Error LayerStream::failure() const {
  if (!problem_) return problem_.error();
  for (archive* a : {packed_.get(), tar_.get()})
    if (::archive_errno(a) != 0 && ::archive_error_string(a) != nullptr)
      return {ErrorKind::corrupt, fmt::format("the layer {} can't be unpacked: {}", layer_.digest,
                                              one_line(::archive_error_string(a), 256))};
  return {ErrorKind::corrupt, fmt::format("the layer {} can't be unpacked", layer_.digest)};
}

Status LayerStream::check(Sha256& hash, const std::string& promised, const char* what) const {
  const auto found = hash.end();
  if (!found) return found.error();
  if (*found == promised) return {};
  return Error{ErrorKind::corrupt,
               fmt::format("the layer {} is damaged or forged: its {} has the digest {} instead of "
                           "{}; nothing of the image is kept",
                           layer_.digest, what, *found, promised)};
}

Status LayerStream::finish() {
  const void* data = nullptr;
  long n;
  while ((n = next_of_tar(&data)) > 0) {
  }
  while (n == 0 && (n = next_of_file(&data)) > 0) n = 0;
  if (n < 0) return failure();
  Status status = check(file_hash_, layer_.digest, "file");
  return status ? check(tar_hash_, layer_.diff_id, "content") : status;
}

}  // namespace bellows::image
