// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/plain/file_identity.h"
#include "common/result.h"
#include "modelstore/digest/model_digest.h"
#include "modelstore/format/model_layout.h"
#include "modelstore/format/safetensors.h"
#include "modelstore/loader/checkpoint_model.h"
#include "modelstore/loader/hdf5_model.h"
#include "modelstore/loader/source_file.h"

namespace bellows {

/// The files of one model, open for reading.
class ModelSource {
 public:
  using OpenFile = std::function<Result<std::unique_ptr<SourceFile>>(const std::string& place)>;
  using Sibling =
      std::function<Result<std::string>(const std::string& index, const std::string& name)>;
  /// Is called with every file.
  using Progress = std::function<void()>;

  /// `path`: a safetensors or HDF5 file, an index of such files, a folder with either under its
  /// usual name, or the folder of a committed step of a checkpoint. Opens them with this user's
  /// rights. Errors name the file.
  static Result<ModelSource> open(const std::string& path, uid_t uid);
  /// Of a file or an index that lies elsewhere, by its URL. `settings`: of whom to ask, and how;
  /// see SiteSettings. Its keys stay in memory until this object is gone.
  static Result<ModelSource> open_remote(const std::string& url, const std::string& settings,
                                         const Progress& progress);

  /// Of where it lies and of what its files are: it changes with them.
  Result<ModelDigest> version() const;
  /// Before all that follows. corrupt: it is no model.
  Status read_headers(const Progress& progress);

  const ModelLayout& layout() const { return layout_; }
  /// Whether its data can't be read from the front to the back: fill(), rather than read().
  bool is_put_together() const { return checkpoint_ || hdf5_; }
  /// All of it, to memory that has pages, which are zero. Calls progress with the bytes that it has
  /// read since, by several threads.
  Status fill(unsigned char* memory, const bellows::Progress& progress) const;
  /// What lies in memory from `begin` on, in so many bytes of zeros. May be called by several
  /// threads at once.
  Status read(std::uint64_t begin, unsigned char* to, std::uint64_t bytes) const;
  /// Of its files that are on this machine, in the state in which they are read.
  std::vector<plain::FileIdentity> identities() const;
  /// corrupt: a file is not what it was when it was opened.
  Status check_unchanged() const;

 private:
  Status open_folder(const std::string& path, const OpenFile& open);
  Status open_indexed(const std::string& place, const OpenFile& open, const Sibling& sibling,
                      const Progress& progress);
  Status open_checkpoint(const std::string& folder, const OpenFile& open);
  Status open_shard_of(const ShardFile& shard, const OpenFile& open);
  Status open_one(const std::string& place, const OpenFile& open);
  Status read_header(const SourceFile& file);
  Status read_datasets();

  std::vector<std::unique_ptr<SourceFile>> files_;
  std::unique_ptr<SourceFile> index_file_;
  std::optional<TensorIndex> index_;
  std::vector<ModelFile> headers_;
  std::optional<CheckpointModel> checkpoint_;  ///< its manifest is the index, its shards the files
  bool is_hdf5_ = false;
  std::optional<Hdf5Model> hdf5_;  ///< after the file that it reads
  std::size_t tensors_ = 0;        ///< in all files, also those that the index does not name
  ModelLayout layout_;
};

}  // namespace bellows
