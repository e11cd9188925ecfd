// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>

#include <string>
#include <vector>

#include "common/fd.h"
#include "image/layout/digest.h"
#include "image/unpack/layer_stream.h"

namespace bellows::image {

/// What a layer's author says about one of its files. A value.
struct Item {
  std::string name;
  unsigned type = AE_IFREG;
  std::string text;  ///< of a file; of a link, where it leads
  unsigned mode = 0644;
  std::string hard;  ///< the file that it is a hard link to
};

inline Item file(const std::string& name, const std::string& text, unsigned mode = 0644) {
  return {name, AE_IFREG, text, mode, ""};
}
inline Item directory(const std::string& name, unsigned mode = 0755) {
  return {name, AE_IFDIR, "", mode, ""};
}
inline Item soft_link(const std::string& name, const std::string& to) {
  return {name, AE_IFLNK, to, 0777, ""};
}
inline Item hard_link(const std::string& name, const std::string& to) {
  return {name, AE_IFREG, "", 0644, to};
}

enum class Packing { none, gzip, zstd };

/// A tar file, packed or not.
inline std::string tar_of(const std::vector<Item>& items, Packing packing = Packing::none) {
  std::string bytes;
  archive* tar = archive_write_new();
  archive_write_set_format_pax_restricted(tar);
  archive_write_set_bytes_in_last_block(tar, 1);
  if (packing == Packing::gzip) archive_write_add_filter_gzip(tar);
  if (packing == Packing::zstd) archive_write_add_filter_zstd(tar);
  archive_write_open(
      tar, &bytes, nullptr,
      [](archive*, void* to, const void* data, std::size_t size) {
        static_cast<std::string*>(to)->append(static_cast<const char*>(data), size);
        return static_cast<la_ssize_t>(size);
      },
      nullptr);
  for (const Item& item : items) {
    archive_entry* entry = archive_entry_new();
    archive_entry_set_pathname(entry, item.name.c_str());
    archive_entry_set_filetype(entry, item.type);
    archive_entry_set_perm(entry, item.mode);
    archive_entry_set_mtime(entry, 1000000000, 0);
    if (item.type == AE_IFLNK) archive_entry_set_symlink(entry, item.text.c_str());
    if (!item.hard.empty()) archive_entry_set_hardlink(entry, item.hard.c_str());
    const bool has_text = item.type == AE_IFREG && item.hard.empty();
    archive_entry_set_size(entry, has_text ? static_cast<la_int64_t>(item.text.size()) : 0);
    archive_write_header(tar, entry);
    if (has_text) archive_write_data(tar, item.text.data(), item.text.size());
    archive_entry_free(entry);
  }
  archive_write_close(tar);
  archive_write_free(tar);
  return bytes;
}

/// A layer with these bytes, in a file that has no name.
inline Layer layer_of(const std::string& blob, const std::string& tar) {
  Layer layer;
  layer.file = Fd(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  (void)write_all(layer.file.get(), blob, "the layer");
  ::lseek(layer.file.get(), 0, SEEK_SET);
  layer.digest = *digest_of(blob);
  layer.diff_id = *digest_of(tar);
  return layer;
}

}  // namespace bellows::image
