// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "tests/unit/modelstore/hostile_server.h"
#include "tests/unit/modelstore/model_store.h"

namespace bellows::model_test {

inline constexpr std::size_t kMega = 1 << 20;

/// A server with files, in versions that a test may change.
class FileServer {
 public:
  void put(const std::string& path, const std::string& bytes, const std::string& etag = "\"v1\"") {
    const std::lock_guard<std::mutex> lock(mutex_);
    files_[path] = {bytes, etag};
  }
  std::string url(const std::string& path) const { return server_.url(path); }
  /// Bytes that clients were sent.
  std::uint64_t sent() const { return sent_; }
  unsigned requests() const { return server_.requests(); }
  /// From now on, or no longer, what lies behind the first bytes never comes.
  void stall(bool stalls) { stalls_ = stalls; }
  /// From now on, no answer comes until it no longer holds them.
  void hold(bool holds) { holds_ = holds; }
  bool has_stalled() const { return stalled_; }

 private:
  struct File {
    std::string bytes;
    std::string etag;
  };

  void serve(const HttpRequest& request, HttpPeer& peer) {
    (void)eventually([&] { return !holds_; });
    File file;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      auto found = files_.find(request.path);
      if (found == files_.end())
        found = files_.find(request.path.substr(0, request.path.find('?')));
      if (found != files_.end()) file = found->second;
    }
    if (file.bytes.empty()) {
      peer.send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
      return;
    }
    peer.send(head_of(request, file.bytes.size(), {{"ETag", file.etag}}));
    if (stalls_ && request.begin > 1000) {
      stalled_ = true;
      return peer.stall();
    }
    sent_ += request.end - request.begin;
    peer.send(std::string_view(file.bytes).substr(request.begin, request.end - request.begin));
  }

  std::mutex mutex_;
  std::map<std::string, File> files_;
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<bool> stalls_{false}, stalled_{false}, holds_{false};
  HostileServer server_{
      [this](const HttpRequest& request, HttpPeer& peer) { serve(request, peer); }};
};

/// A store that may ask the loopback, and has a disk.
class TieredStore : public ModelStore {
 public:
  explicit TieredStore(const std::string& more = "") {
    settings("address = 127.0.0.1\nslow_seconds = 5\nwhole_seconds = 20\n" + more);
    option("--remote=" + settings_path());
  }
  std::string settings_path() const { return path() + "/remote.conf"; }
  void settings(const std::string& text, mode_t mode = 0600) {
    write_file(settings_path(), text);
    cr_assert_eq(chmod(settings_path().c_str(), mode), 0);
  }
  void remote(const std::string& name, const std::string& url,
              const std::string& more = "tenant=a") {
    option("--model=" + name + "=" + url + "," + more);
  }
  std::string disk() const { return path() + "/disk"; }
  void with_disk(const std::string& bytes, const std::string& more = "") {
    option("--disk=" + disk() + "=" + bytes + more);
  }
  bool has_image(const std::string& digest) const {
    return std::filesystem::exists(disk() + "/" + digest);
  }
  std::size_t images() const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(disk()))
      count += entry.path().filename().string().size() == 64;
    return count;
  }
  /// Of all that is there; also of what is being written.
  std::uint64_t image_bytes() const {
    std::uint64_t bytes = 0;
    std::error_code gone;
    for (const auto& entry : std::filesystem::directory_iterator(disk()))
      if (entry.path().filename().string().size() >= 64) {
        const auto size = entry.file_size(gone);
        if (!gone) bytes += size;
      }
    return bytes;
  }
  /// Loads it, waits for its image, and has it in memory no more. Its digest.
  std::string store_image(const std::string& name, const std::string& tenant = "a") {
    std::string digest;
    {
      const OpenModel model = open(name, tenant);
      cr_assert(model.ok(), "%s", model.error().c_str());
      digest = model.digest();
    }
    cr_assert(says("stored " + digest) && has_image(digest), "%s", log().c_str());
    evict(name, tenant);
    return digest;
  }
  void evict(const std::string& name, const std::string& tenant = "a") {
    ControlClient control(*this);
    cr_assert(eventually(
        [&] { return control.call(modelwire::ControlOp::evict, tenant, name).empty(); }));
  }
  /// As after a boot: what was in memory is no more.
  void reboot() {
    const pid_t kept = keeper();
    stop();
    kill(kept, SIGKILL);
    // Until its memory is gone, as its link to the program says.
    cr_assert(eventually([&] {
      std::error_code gone;
      return std::filesystem::read_symlink("/proc/" + std::to_string(kept) + "/exe", gone).empty();
    }));
    start();
  }
};

}  // namespace bellows::model_test
