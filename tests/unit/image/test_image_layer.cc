// SPDX-License-Identifier: Apache-2.0
// What layers of an image become in a directory, whoever wrote them.
#include <criterion/criterion.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "image/unpack/layer.h"
#include "tests/unit/image/layer_files.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace bellows::image;

TestSuite(image_layer, .timeout = 60);

namespace {

/// A directory for an image, with another one beside it that no image may touch.
class Rootfs {
 public:
  Rootfs() {
    std::filesystem::create_directory(path());
    std::filesystem::create_directory(outside());
    (void)replace_file(outside() + "/host", "host's", 0644);
    root_ = *open_file(path(), O_RDONLY | O_DIRECTORY);
  }
  std::string path() const { return scratch_.path() + "/rootfs"; }
  std::string outside() const { return scratch_.path() + "/outside"; }

  Status apply(const Layer& layer) { return apply_layer(root_, layer, limits, tally); }
  Status apply(const std::vector<Item>& items) {
    const std::string tar = tar_of(items);
    return apply(layer_of(tar, tar));
  }

  /// Paths below it in order, each with what a file or a link says.
  std::string said() const {
    std::vector<std::string> lines;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path())) {
      std::string line = entry.path().string().substr(path().size() + 1);
      if (entry.is_symlink())
        line += "->" + std::filesystem::read_symlink(entry.path()).string();
      else if (entry.is_regular_file())
        line += "=" + *read_file(entry.path(), 1 << 20);
      lines.push_back(line);
    }
    std::sort(lines.begin(), lines.end());
    std::string all;
    for (const auto& line : lines) all += (all.empty() ? "" : " ") + line;
    return all;
  }

  /// Whether nothing changed beside it.
  bool stayed_in() const {
    std::size_t others = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(scratch_.path()))
      ++others;
    std::size_t files = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(outside()))
      ++files;
    return others == 2 && files == 1 && *read_file(outside() + "/host", 100) == "host's";
  }

  Limits limits;
  Tally tally;

 private:
  ScratchDir scratch_;
  Fd root_;
};

void is(const std::string& found, const std::string& wanted) {
  cr_expect(found == wanted, "\"%s\" instead of \"%s\"", found.c_str(), wanted.c_str());
}

void refused(const Status& status, const std::string& why) {
  cr_assert(not(status.ok()), "it was taken, without \"%s\"", why.c_str());
  cr_expect(status.error().text.find(why) != std::string::npos, "\"%s\" without \"%s\"",
            status.error().text.c_str(), why.c_str());
}

mode_t mode_of(const std::string& path) {
  struct stat info {};
  cr_assert(::lstat(path.c_str(), &info) == 0);
  return info.st_mode & 07777;
}

}  // namespace

Test(image_layer, files_directories_and_links) {
  for (const Packing packing : {Packing::none, Packing::gzip, Packing::zstd}) {
    const std::vector<Item> items = {directory("./"),
                                     directory("bin/"),
                                     file("bin/sh", "shell", 04755),
                                     soft_link("sh", "bin/sh"),
                                     hard_link("bin/ash", "bin/sh"),
                                     file("etc/deep/x", "x", 0000),
                                     soft_link("abs", "/bin"),
                                     directory("closed", 0000)};
    Rootfs root;
    const auto status = root.apply(layer_of(tar_of(items, packing), tar_of(items)));
    cr_assert(status.ok(), "%s", status.error().text.c_str());
    is(root.said(),
       "abs->/bin bin bin/ash=shell bin/sh=shell closed etc etc/deep etc/deep/x=x sh->bin/sh");
    cr_expect(mode_of(root.path() + "/bin/sh") == 0755, "no setuid");
    cr_expect(mode_of(root.path() + "/etc/deep/x") == 0400);
    cr_expect(mode_of(root.path() + "/closed") == 0700);
    cr_expect(root.tally.entries == items.size());
  }
}

Test(image_layer, names_that_lead_out) {
  for (const char* name : {"../outside/new", "a/../../outside/new", "..", "a/.."}) {
    Rootfs root;
    refused(root.apply({file(name, "new")}), "may not have \"..\"");
    cr_expect(root.stayed_in(), "%s", name);
  }
  Rootfs root;
  cr_assert(root.apply({file("/etc/x", "x"), file("//etc//./y", "y")}).ok());
  is(root.said(), "etc etc/x=x etc/y=y");
}

Test(image_layer, links_that_lead_out) {
  Rootfs root;
  const std::string out = root.outside();
  cr_assert(root.apply({soft_link("abs", out), soft_link("rel", "../outside"),
                        soft_link("proc", "/proc/self/root")})
                .ok());
  // In the image itself such a link leads to the image's own, which is not there.
  for (const char* name : {"abs/new", "rel/new", "proc/new"}) {
    (void)root.apply({file(name, "new")});
    cr_expect(root.stayed_in(), "%s", name);
  }
  (void)root.apply({hard_link("stolen", "abs/host")});
  (void)root.apply({file("abs/.wh.host", "")});
  (void)root.apply({file("abs/.wh..wh..opq", "")});
  cr_expect(root.stayed_in());
  cr_expect(not(std::filesystem::exists(root.path() + "/stolen")));
}

Test(image_layer, a_link_within_the_image_is_followed) {
  Rootfs root;
  cr_assert(root.apply({directory("usr/lib"), soft_link("lib", "/usr/lib")}).ok());
  cr_assert(root.apply({file("lib/x.so", "x"), hard_link("lib/y.so", "lib/x.so")}).ok());
  is(root.said(), "lib->/usr/lib usr usr/lib usr/lib/x.so=x usr/lib/y.so=x");
}

Test(image_layer, a_file_takes_the_place_of_another) {
  Rootfs root;
  const std::string out = root.outside();
  cr_assert(
      root.apply({soft_link("f", out + "/host"), soft_link("d", out), file("old/in", "x")}).ok());
  cr_assert(
      root.apply({file("f", "mine"), directory("d"), file("d/host", "mine"), file("old", "y")})
          .ok());
  is(root.said(), "d d/host=mine f=mine old=y");
  cr_expect(root.stayed_in());
}

Test(image_layer, whiteouts) {
  Rootfs root;
  cr_assert(root.apply({file("a/x", "1"), file("a/y", "1"), file("b/x/z", "1"), file("b/y", "1"),
                        file("c/x", "1")})
                .ok());
  cr_assert(root.apply({file("a/.wh.x", ""), file("b/x/new", "2"), file("b/.wh..wh..opq", ""),
                        file(".wh.c", ""), file("none/.wh.x", ""), file(".wh..wh.plnk", "")})
                .ok());
  is(root.said(), "a a/y=1 b b/x b/x/new=2 none");
}

Test(image_layer, whiteouts_of_what_is_no_file) {
  for (const char* name : {"a/.wh...", "a/.wh..", "a/.wh."}) {
    Rootfs root;
    refused(root.apply({file("a/x", "1"), file(name, "")}), "it takes away what is no file");
    cr_expect(root.stayed_in());
  }
}

Test(image_layer, devices_are_left_out) {
  Rootfs root;
  cr_assert(root.apply({{"null", AE_IFCHR, "", 0666, ""},
                        {"sda", AE_IFBLK, "", 0660, ""},
                        {"fifo", AE_IFIFO, "", 0666, ""},
                        file("x", "x")})
                .ok());
  is(root.said(), "x=x");
  cr_expect(root.tally.left_out == 3);
}

Test(image_layer, digests_that_lie) {
  const std::string tar = tar_of({file("x", "x")});
  Rootfs root;
  Layer layer = layer_of(tar, tar);
  layer.digest = *digest_of("other");
  refused(root.apply(layer), "damaged or forged: its file has the digest sha256:");
  layer = layer_of(tar, tar);
  layer.diff_id = *digest_of("other");
  refused(root.apply(layer), "damaged or forged: its content has the digest sha256:");
  // Behind the end of the archive nothing is unpacked, but the digest is of all.
  const std::string more = tar + "more";
  cr_expect(root.apply(layer_of(more, more)).ok());
  layer = layer_of(more, more);
  layer.digest = *digest_of(tar);
  cr_expect(not(root.apply(layer).ok()));
}

Test(image_layer, broken_archives) {
  const std::string good = tar_of({file("x", std::string(100000, 'x'))}, Packing::gzip);
  for (const std::string& blob : {std::string("no archive at all"), good.substr(0, good.size() / 2),
                                  std::string("\x1f\x8b\x08\0garbage", 10), std::string()}) {
    Rootfs root;
    const auto status = root.apply(layer_of(blob, "x"));
    cr_assert(not(status.ok()));
    cr_expect(not(status.error().text.empty()));
  }
}

Test(image_layer, a_bomb_ends_at_the_limit) {
  Rootfs root;
  root.limits.bytes = 1 << 20;
  const std::vector<Item> items = {file("zeros", std::string(64 << 20, '\0'))};
  const auto status = root.apply(layer_of(tar_of(items, Packing::gzip), tar_of(items)));
  refused(status, "more than 1048576 bytes");
  cr_expect(std::filesystem::file_size(root.path() + "/zeros") <= 2 << 20);
}

Test(image_layer, names_and_numbers_have_limits) {
  Rootfs root;
  root.limits.entries = 10;
  root.limits.depth = 20;
  root.limits.name_bytes = 200;
  refused(root.apply(std::vector<Item>(11, file("x", ""))), "more than 10 files");
  root.tally = Tally();
  std::string deep;
  for (int i = 0; i < 25; ++i) deep += "d/";
  refused(root.apply({file(deep + "x", "")}), "it lies deeper than 20 directories");
  refused(root.apply({file(std::string(201, 'x'), "")}), "longer than 200 bytes");
  // A short name through a link is as deep as where that leads.
  root.tally = Tally();
  const std::string ten = deep.substr(0, 20);
  cr_expect(root.apply({soft_link("ten", ten), file(ten + "x", ""), file("ten/y", "")}).ok());
  refused(root.apply({file("ten/" + ten + "x", "")}), "it lies deeper than 20 directories");
  cr_expect(root.apply({file("ten/" + ten.substr(0, 18) + "x", "")}).ok());
  cr_expect(not(root.apply({directory(""), file("x/", "x"), soft_link(".", "x")}).ok()));
}
