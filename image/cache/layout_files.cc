// SPDX-License-Identifier: Apache-2.0
#include "image/cache/layout_files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include "common/fd.h"
#include "common/text.h"
#include "image/layout/digest.h"
#include "image/layout/rc_script.h"
#include "image/unpack/layer.h"
#include "image/unpack/tree.h"

namespace bellows::image {
namespace {

std::string blob_path(const std::string& layout, const std::string& digest) {
  return layout + "/blobs/sha256/" + hex_of(digest);
}

Result<std::string> read_blob(const std::string& layout, const std::string& digest) {
  auto text = read_file(blob_path(layout, digest), kMostJson);
  if (!text) return text;
  const auto found = digest_of(*text);
  if (!found) return found.error();
  if (*found != digest)
    return Error{ErrorKind::corrupt,
                 fmt::format("the image's file {} is damaged or forged: its digest is {}; nothing "
                             "of the image is kept",
                             digest, *found)};
  return text;
}

/// In place of whatever the image has there, which may be a link.
Status write_into(Tree& tree, const char* name, const std::string& text, mode_t mode) {
  const auto place = tree.find(name, true);
  if (!place) return place.error();
  if (auto status = tree.remove(*place); !status) return status;
  const Fd fd(::openat(place->directory, place->name.c_str(),
                       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!fd) return errno_error("make the image's file", name);
  return write_all(fd.get(), text, name);
}

Status write_config(const Fd& root, const ImageConfig& config, const Limits& limits) {
  std::string environment;
  for (const std::string& variable : config.environment) environment += variable + '\n';
  Tree tree(Fd(::fcntl(root.get(), F_DUPFD_CLOEXEC, 3)), limits);
  Status status = write_into(tree, "etc/environment", environment, 0644);
  // Made as Docker makes it: a program is to begin there. Tasks are told if it can't be made.
  if (status && has_workdir(config)) (void)tree.find(config.workdir + "/.bellows", true);
  return status ? write_into(tree, "etc/rc", rc_text(config), 0755) : status;
}

}  // namespace

Result<Tally> unpack_layout(const std::string& layout, const std::string& root,
                            const Limits& limits) {
  const auto index_text = read_file(layout + "/index.json", kMostJson);
  if (!index_text) return index_text.error();
  const auto index = parse_layout_index(*index_text);
  if (!index) return index.error();
  const auto manifest_text = read_blob(layout, index->digest);
  if (!manifest_text) return manifest_text.error();
  const auto manifest = parse_manifest(*manifest_text);
  if (!manifest) return manifest.error();
  const auto config_text = read_blob(layout, manifest->config.digest);
  if (!config_text) return config_text.error();
  const auto config = parse_config(*config_text);
  if (!config) return config.error();
  if (config->diff_ids.size() != manifest->layers.size())
    return Error{ErrorKind::corrupt,
                 fmt::format("the image has {} layers, and its configuration tells of {}",
                             manifest->layers.size(), config->diff_ids.size())};
  const auto fd = open_file(root, O_RDONLY | O_DIRECTORY);
  if (!fd) return fd.error();
  Tally tally;
  for (std::size_t i = 0; i < manifest->layers.size(); ++i) {
    auto file = open_file(blob_path(layout, manifest->layers[i].digest), O_RDONLY | O_NONBLOCK);
    if (!file) return file.error();
    const Layer layer{*std::move(file), manifest->layers[i].digest, config->diff_ids[i]};
    if (auto status = apply_layer(*fd, layer, limits, tally); !status) return status.error();
  }
  if (auto status = write_config(*fd, *config, limits); !status) return status.error();
  return tally;
}

}  // namespace bellows::image
