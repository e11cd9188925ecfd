// SPDX-License-Identifier: Apache-2.0
#include "modelstore/loader/remote_source.h"

#include <fmt/core.h>

#include <string_view>
#include <utility>

#include "common/text.h"
#include "modelstore/loader/model_place.h"
#include "modelstore/remote/remote_file.h"

namespace bellows {
namespace {

class RemoteSource final : public SourceFile {
 public:
  RemoteSource(RemoteFile file, std::string url) : file_(std::move(file)), url_(std::move(url)) {}

  const std::string& name() const override { return file_.name(); }
  std::uint64_t size() const override { return file_.size(); }
  std::string version() const override {
    const FileVersion& version = file_.version();
    // All of the URL: what people are shown of it may be that of other files, too.
    return fmt::format("{}\n{}\n{}\n{}", url_, version.size, version.etag, version.last_modified);
  }
  Status read(unsigned char* to, std::uint64_t bytes, std::uint64_t offset) const override {
    return file_.read(offset, to, bytes);
  }
  /// Each read demands the version.
  Status check_unchanged() const override { return {}; }

 private:
  RemoteFile file_;
  std::string url_;
};

}  // namespace

Result<std::unique_ptr<SourceFile>> open_remote_source(const std::string& text,
                                                       const SiteSettings& settings) {
  const auto url = RemoteUrl::parse(text, settings.s3);
  if (!url) return url.error();
  auto file = RemoteFile::open(text, settings.credentials_for(*url), settings.limits);
  if (!file) return file.error();
  return std::unique_ptr<SourceFile>(std::make_unique<RemoteSource>(std::move(*file), text));
}

Result<std::string> sibling_url(const std::string& url, const std::string& name) {
  const bool is_s3 = to_lower(url.substr(0, 5)) == "s3://";
  if (!is_s3 && url.find_first_of("?#") != std::string::npos)
    return Error{ErrorKind::invalid,
                 fmt::format("{}: the URL of an index has no query, since its model's files lie "
                             "beside it: leave it out",
                             shown_place(url))};
  return url.substr(0, url.rfind('/') + 1) + (is_s3 ? name : percent_escaped(name, "-._~"));
}

}  // namespace bellows
