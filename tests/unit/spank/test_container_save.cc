// SPDX-License-Identifier: Apache-2.0
// The file that --container-save writes, by what stands for mksquashfs and by mksquashfs itself.
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "common/fd.h"
#include "spank/container/save_file.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace bellows::container;

TestSuite(save_file, .timeout = 60);

namespace {

/// A container's tree beside the file that is to be written.
class Saved {
 public:
  Saved() {
    std::filesystem::create_directories(scratch_.path() + "/tree/etc");
    std::filesystem::create_directories(scratch_.path() + "/out");
    write("tree/etc/made", "made\n", 0644);
  }

  std::string path(const std::string& name) const { return scratch_.path() + "/" + name; }
  void write(const std::string& name, const std::string& text, mode_t mode) const {
    cr_assert(replace_file(path(name), text, mode).ok());
  }
  std::string read(const std::string& name) const {
    const auto text = read_file(path(name), 1U << 20);
    return text ? *text : "! " + text.error().text;
  }
  /// The names in the directory of the file.
  std::string names() const {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(path("out")))
      all.push_back(entry.path().filename().string());
    std::sort(all.begin(), all.end());
    std::string text;
    for (const auto& name : all) text += (text.empty() ? "" : " ") + name;
    return text;
  }
  SaveFile file(const std::string& name, const std::string& program) const {
    return {path("out/" + name), program, "7.0.0", 2};
  }
  /// By a script, which has an open file as $2. "! " and the sentence for an error.
  std::string by(const std::string& script, const std::string& name = "box.sqsh") const {
    write("program", "#!/bin/sh\n" + script + "\n", 0755);
    return save(file(name, path("program")));
  }
  std::string save(const SaveFile& file) const {
    const auto root = open_file(path("tree"), O_PATH | O_DIRECTORY);
    cr_assert(root.ok());
    const auto said = write_save(root->get(), file);
    return said ? *said : "! " + said.error().text;
  }

 private:
  ScratchDir scratch_;
};

void is(const std::string& found, const std::string& wanted) {
  cr_expect(found == wanted, "\"%s\" instead of \"%s\"", found.c_str(), wanted.c_str());
}
void has(const std::string& found, const std::string& part) {
  cr_expect(found.find(part) != std::string::npos, "\"%s\" is not in \"%s\"", part.c_str(),
            found.c_str());
}

}  // namespace

Test(save_file, is_in_place_when_it_is_whole) {
  const Saved saved;
  saved.write("out/box.sqsh", "before", 0600);
  ::umask(027);
  const std::string said = saved.by("cat ../out/box.sqsh etc/made >\"$2\"; ls -A ../out >>\"$2\"");
  is(said, "the container is saved to " + saved.path("out/box.sqsh") + " (1 MiB)");
  is(saved.read("out/box.sqsh"), "beforemade\n.box.sqsh.7.0.0.saving\nbox.sqsh\n");
  is(saved.names(), "box.sqsh");
  struct stat info {};
  cr_assert_eq(::stat(saved.path("out/box.sqsh").c_str(), &info), 0);
  cr_expect_eq(info.st_mode & 0777, 0640);
}

Test(save_file, leaves_nothing_of_a_failure) {
  const Saved saved;
  saved.write("out/box.sqsh", "before", 0600);
  has(saved.by("echo much >\"$2\"; echo 'Write failed because No space left on device' >&2; "
               "echo 'FATAL ERROR: Failed to write' >&2; exit 1"),
      "out/box.sqsh: Write failed because No space left on device");
  has(saved.by("echo 'FATAL ERROR: out of memory' >&2; exit 1"), "FATAL ERROR: out of memory");
  has(saved.by("kill -9 $$"), "mksquashfs was killed by signal 9");
  has(saved.by("exit 3"), "mksquashfs exited with status 3");
  is(saved.read("out/box.sqsh"), "before");
  is(saved.names(), "box.sqsh");
}

Test(save_file, is_never_what_took_its_place) {
  const Saved saved;
  const std::string name = "../out/.box.sqsh.7.0.0.saving";
  saved.write("out/other", "before", 0600);
  for (const std::string other : {"ln -s other ", "cp ../out/other ", "true "}) {
    has(saved.by("rm " + name + "; " + other + name + "; echo saved >\"$2\""),
        "box.sqsh: another file was put in the place");
    is(saved.read("out/other"), "before");
    is(saved.names(), "other");
  }
}

Test(save_file, tells_what_could_not_be_read) {
  const Saved saved;
  has(saved.by("echo 'Could not open ./a, skipping...' >&2; "
               "echo 'Failed to read file ./b, creating empty file' >&2"),
      "(0 MiB), without 2 files or directories that only others may read");
}

Test(save_file, replaces_what_a_killed_one_left) {
  const Saved saved;
  saved.write("out/.box.sqsh.7.0.0.saving", "half", 0600);
  forget_save(saved.file("box.sqsh", ""));
  is(saved.names(), "");
  saved.write("out/.box.sqsh.7.0.0.saving", "half", 0600);
  cr_expect_eq(::symlink("/etc/passwd", saved.path("out/.link.7.0.0.saving").c_str()), 0);
  saved.by("echo x >\"$2\"");
  saved.by("echo x >\"$2\"", "link");
  is(saved.names(), "box.sqsh link");
}

Test(save_file, a_link_to_a_file_is_that_file) {
  const Saved saved;
  saved.write("tree/elsewhere", "before", 0600);
  cr_expect_eq(::symlink("../tree/elsewhere", saved.path("out/box.sqsh").c_str()), 0);
  saved.by("echo after >\"$2\"");
  is(saved.read("tree/elsewhere"), "after\n");
  cr_expect(std::filesystem::is_symlink(saved.path("out/box.sqsh")));
}

Test(save_file, refuses_what_cannot_be_written) {
  const Saved saved;
  const auto why = [&](const std::string& path, const std::string& program) {
    const Status status = check_save({path, program, "", 1});
    return status.ok() ? "" : status.error().text;
  };
  is(why(saved.path("out/new.sqsh"), "/bin/true"), "");
  has(why(saved.path("none/new.sqsh"), "/bin/true"), "No such file or directory; name a file in");
  has(why(saved.path("out"), "/bin/true"), "it is there and is no file");
  has(why("/dev/null", "/bin/true"), "it is there and is no file");
  has(why(saved.path("out/new.sqsh"), "/none/mksquashfs"), "install squashfs-tools");
  has(why(saved.path("out/new.sqsh"), ""), "this site saves no containers");
  if (::geteuid() != 0) cr_skip_test("another user's directory needs root");
  cr_assert_eq(::setresuid(20001, 20001, 20001), 0);
  has(why("/new.sqsh", "/bin/true"), "/new.sqsh: Permission denied; name a file in");
}

Test(save_file, is_a_squashfs_of_roots) {
  const Saved saved;
  const std::string program = "/usr/bin/mksquashfs";
  if (::access(program.c_str(), X_OK) != 0) cr_skip_test("needs squashfs-tools");
  cr_assert_eq(::chown(saved.path("tree/etc/made").c_str(), 20001, 20001), 0);
  has(saved.save(saved.file("box.sqsh", program)), "box.sqsh (1 MiB)");
  is(saved.names(), "box.sqsh");
  const std::string list =
      "unsquashfs -lln " + saved.path("out/box.sqsh") + " | grep '0/0.*etc/made$' >/dev/null";
  cr_expect_eq(::system(list.c_str()), 0);
}
