// SPDX-License-Identifier: Apache-2.0
// The loader as a process, with the test for its daemon.
#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "common/child.h"
#include "common/page_cache.h"
#include "common/plain/file_identity.h"
#include "modelstore/catalogue/catalogue.h"
#include "modelstore/digest/tree_digest.h"
#include "modelstore/loader/confine.h"
#include "modelstore/loader/loader_wire.h"
#include "tests/unit/modelstore/loader_process.h"
#include "tests/unit/modelstore/model_files.h"
#include "tests/unit/support/scratch_dir.h"
#include "tests/unit/support/text_support.h"

using namespace bellows;
using namespace bellows::model_test;

namespace {

constexpr uid_t kNobody = 65534;

std::string identity_of(const std::string& path) {
  struct stat s;
  cr_assert_eq(stat(path.c_str(), &s), 0);
  const auto identity = plain::identity_of(s);
  return {reinterpret_cast<const char*>(identity.data()), identity.size()};
}

/// A line of what /proc says of a process.
std::string status_line(pid_t pid, const std::string& begin) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(begin)) return line;
  return "";
}

}  // namespace

Test(model_loader, fills_memory_and_leaves_it, .timeout = 60) {
  const ScratchDir scratch;
  const std::string path = scratch.path() + "/m.safetensors";
  const std::string data = random_bytes(5 * kLeafBytes + 1000);
  write_file(path, one_tensor("w", data));
  LoaderProcess loader;
  loader.load(path);
  const LoaderMessage sized = loader.next();
  cr_assert(sized.word == LoaderWord::sized, "%s", sized.to_error().text.c_str());
  const LoaderMessage done = loader.fill(sized.bytes);
  cr_assert(done.word == LoaderWord::done, "%s", done.to_error().text.c_str());
  // Nobody has it mapped for writing any more.
  cr_expect_eq(fcntl(loader.fd(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  const std::string memory = loader.memory();
  cr_expect(done.digest == digest_of(memory));
  catalogue::View view;
  cr_assert_null(view.open(memory.data() + sized.catalogue_at, sized.catalogue_bytes));
  cr_assert_eq(view.find("w", 1), 0);
  const auto& record = view.record(0);
  cr_expect(record.bytes == data.size() && memory.compare(record.offset, record.bytes, data) == 0);
}

Test(model_loader, reads_past_the_page_cache_what_is_not_there, .timeout = 60) {
  const ScratchDir scratch;
  const std::string path = scratch.path() + "/m.safetensors";
  // Neither begins nor ends at a block, nor at a piece.
  const std::string data = random_bytes(7 * kLeafBytes + 12345);
  write_file(path, one_tensor("w", data));
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  cr_assert_eq(fdatasync(file.get()), 0);
  cr_assert_eq(posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
  LoaderProcess loader;
  loader.load(path);
  const LoaderMessage sized = loader.next();
  cr_assert(sized.word == LoaderWord::sized, "%s", sized.to_error().text.c_str());
  const LoaderMessage done = loader.fill(sized.bytes);
  cr_assert(done.word == LoaderWord::done, "%s", done.to_error().text.c_str());
  const std::string memory = loader.memory();
  catalogue::View view;
  cr_assert_null(view.open(memory.data() + sized.catalogue_at, sized.catalogue_bytes));
  cr_expect(memory.compare(view.record(0).offset, data.size(), data) == 0);
  cr_expect(done.digest == digest_of(memory));
  if (Fd(open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC)))
    cr_expect(!is_cached(file.get(), std::filesystem::file_size(path)), "it filled the cache");
}

Test(model_loader, reads_several_files_under_an_index, .timeout = 60) {
  const ScratchDir scratch;
  const std::string a = random_bytes(3000), b = random_bytes(2 * kLeafBytes);
  write_file(scratch.path() + "/1.safetensors", one_tensor("a", a));
  write_file(scratch.path() + "/2.safetensors", one_tensor("b", b));
  write_file(scratch.path() + "/model.safetensors.index.json",
             R"({"weight_map":{"b":"2.safetensors","a":"1.safetensors"}})");
  for (const std::string& path :
       {scratch.path(), scratch.path() + "/model.safetensors.index.json"}) {
    LoaderProcess loader;
    loader.load(path);
    const LoaderMessage sized = loader.next();
    cr_assert(sized.word == LoaderWord::sized, "%s", sized.to_error().text.c_str());
    cr_expect(loader.files == identity_of(scratch.path() + "/1.safetensors") +
                                  identity_of(scratch.path() + "/2.safetensors") ||
              loader.files == identity_of(scratch.path() + "/2.safetensors") +
                                  identity_of(scratch.path() + "/1.safetensors"));
    cr_assert(loader.fill(sized.bytes).word == LoaderWord::done);
    const std::string memory = loader.memory();
    catalogue::View view;
    cr_assert_null(view.open(memory.data() + sized.catalogue_at, sized.catalogue_bytes));
    cr_assert_eq(view.count(), 2);
    cr_expect(memory.compare(view.record(0).offset, a.size(), a) == 0);
    cr_expect(memory.compare(view.record(1).offset, b.size(), b) == 0);
  }
}

Test(model_loader, counts_the_tensors_of_all_files_together, .timeout = 100) {
  const ScratchDir scratch;
  std::string header = "{";
  for (int i = 0; i < 600000; ++i)
    header += (i ? "," : "") + entry(std::to_string(i), "U8", "[0]", 0, 0);
  write_file(scratch.path() + "/1.safetensors", tensor_file(header + "}", ""));
  std::filesystem::create_symlink("1.safetensors", scratch.path() + "/2.safetensors");
  write_file(scratch.path() + "/model.safetensors.index.json",
             R"({"weight_map":{"1":"1.safetensors","2":"2.safetensors"}})");
  cr_expect(has(refusal(scratch.path(), ErrorKind::corrupt), "with the files before it"));
}

Test(model_loader, says_what_is_no_model, .timeout = 60) {
  const ScratchDir scratch;
  const std::string path = scratch.path() + "/x";
  cr_expect(has(refusal(path, ErrorKind::not_found), path));
  cr_expect(has(refusal(scratch.path(), ErrorKind::not_found), "/model.safetensors"));
  cr_assert_eq(mkfifo(path.c_str(), 0600), 0);
  cr_expect(has(refusal(path, ErrorKind::corrupt), "not a plain file"));
  std::filesystem::remove(path);
  write_file(path, "short");
  cr_expect(has(refusal(path, ErrorKind::corrupt), path));
  write_file(path, tensor_file("{\"x\":1}", ""));
  cr_expect(has(refusal(path, ErrorKind::corrupt), "a number"));
  write_file(path, tensor_file("{" + entry("x", "U8", "[4]", 0, 4) + "}", "abc"));
  cr_expect(has(refusal(path, ErrorKind::corrupt), "ends behind the end"));
  write_file(scratch.path() + "/model.safetensors.index.json", R"({"weight_map":{"b":"gone"}})");
  cr_expect(has(refusal(scratch.path(), ErrorKind::not_found), "/gone"));
}

Test(model_loader, refuses_a_file_that_changes, .timeout = 60) {
  const auto change = [](auto how) {
    const ScratchDir scratch;
    const std::string path = scratch.path() + "/m.safetensors";
    write_file(path, one_tensor("w", random_bytes(3 * kLeafBytes)));
    LoaderProcess loader;
    loader.load(path);
    const LoaderMessage sized = loader.next();
    cr_assert(sized.word == LoaderWord::sized);
    how(path);
    return loader.fill(sized.bytes);
  };
  const auto overwritten = change([](const std::string& path) {
    const Fd fd(open(path.c_str(), O_WRONLY));
    cr_assert_eq(pwrite(fd.get(), "x", 1, 100000), 1);
  });
  cr_expect(overwritten.word == LoaderWord::failed &&
            has(overwritten.to_error().text, "changed while it was read"));
  const auto shorter =
      change([](const std::string& path) { cr_assert_eq(truncate(path.c_str(), kLeafBytes), 0); });
  cr_expect(shorter.word == LoaderWord::failed && has(shorter.to_error().text, "is truncated"));
  const auto replaced = change([](const std::string& path) {
    write_file(path + ".new", "another");
    std::filesystem::rename(path + ".new", path);
  });
  // The inode's link count changes its times; its bytes are whole.
  cr_expect(replaced.word == LoaderWord::failed || replaced.word == LoaderWord::done);
}

Test(model_loader, opens_with_the_rights_of_a_user, .timeout = 60) {
  if (geteuid() != 0) cr_skip_test("only root can take another user's rights");
  const ScratchDir scratch;
  cr_assert_eq(chmod(scratch.path().c_str(), 0755), 0);
  const std::string path = scratch.path() + "/m.safetensors";
  write_file(path, one_tensor("w", "abcd"));
  cr_assert_eq(chmod(path.c_str(), 0600), 0);
  cr_expect(has(refusal(path, ErrorKind::denied, kNobody), path), "root's file");
  cr_assert_eq(chown(path.c_str(), kNobody, 0), 0);
  LoaderProcess loader;
  loader.load(path, kNobody);
  cr_assert(loader.next().word == LoaderWord::sized);
  struct stat s;
  cr_assert_eq(stat(("/proc/" + std::to_string(loader.pid())).c_str(), &s), 0);
  cr_expect_eq(s.st_uid, 0, "it is nobody's");
  cr_expect(has(refusal(path, ErrorKind::not_found, 54321), "no user 54321"));
}

Test(model_loader, finds_the_digest_of_sealed_memory, .timeout = 60) {
  const std::string bytes = random_bytes(2 * kLeafBytes + 4096);
  const Fd memory(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  cr_assert_eq(write(memory.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  cr_assert_eq(fcntl(memory.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  LoaderProcess loader;
  LoaderMessage task;
  task.word = LoaderWord::check;
  task.bytes = bytes.size();
  cr_assert(send_message(loader.socket(), task, memory.get()).ok());
  const LoaderMessage done = loader.next();
  cr_expect(done.word == LoaderWord::done && done.digest == digest_of(bytes));
}

Test(model_loader, ends_when_its_daemon_does_not_speak_its_language, .timeout = 60) {
  LoaderProcess loader;
  LoaderMessage task;
  task.version = 99;
  cr_assert(send_message(loader.socket(), task).ok());
  const LoaderMessage said = loader.next();
  cr_expect(said.word == LoaderWord::failed && has(said.to_error().text, "different versions"));
}

Test(model_loader, has_given_up_what_parsing_does_not_need, .timeout = 60) {
  const ScratchDir scratch;
  const std::string path = scratch.path() + "/m.safetensors";
  write_file(path, one_tensor("w", "data"));
  LoaderProcess loader;
  loader.load(path);
  cr_assert(loader.next().word == LoaderWord::sized);
  cr_expect(status_line(loader.pid(), "NoNewPrivs") == "NoNewPrivs:\t1");
  cr_expect(status_line(loader.pid(), "Seccomp:") == "Seccomp:\t2");
  for (const std::string set : {"CapEff", "CapPrm", "CapInh"})
    cr_expect(status_line(loader.pid(), set) == set + ":\t0000000000000000", "%s", set.c_str());
}

Test(model_loader, what_is_given_up_is_gone, .timeout = 60) {
  const ScratchDir scratch;
  const std::string file = scratch.path() + "/file", other = scratch.path() + "/other";
  write_file(file, "data");
  const pid_t child = fork();
  if (child == 0) {
    const auto refused = [](long result) { return result == -1 && errno == EPERM; };
    int number = 0;
    const auto expect = [&number](bool holds) {
      if (++number; !holds) _exit(number);
    };
    expect(give_up(GivenUp::network).ok());
    expect(refused(socket(AF_INET, SOCK_STREAM, 0)));
    expect(refused(execl("/bin/true", "true", nullptr)));
    expect(open("/dev/null", O_RDONLY) >= 0);
    expect(refused(open(file.c_str(), O_WRONLY)));
    expect(refused(open(other.c_str(), O_RDONLY | O_CREAT, 0600)));
    expect(refused(truncate(file.c_str(), 0)));
    expect(refused(renameat(AT_FDCWD, file.c_str(), AT_FDCWD, other.c_str())));
    expect(refused(rmdir(scratch.path().c_str())));
    expect(refused(mkdir(other.c_str(), 0700)));
    expect(refused(lchown(file.c_str(), geteuid(), getegid())));
    expect(refused(kill(getppid(), 0)));
    // The daemon is in the group of its loaders.
    expect(refused(kill(0, 0)));
    expect(kill(getpid(), 0) == 0);
    expect(refused(syscall(SYS_tgkill, getppid(), getppid(), 0)));
    expect(refused(syscall(SYS_pidfd_open, getppid(), 0)));
    rlimit limit{};
    expect(refused(prlimit(getppid(), RLIMIT_NOFILE, nullptr, &limit)));
    expect(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    expect(give_up(GivenUp::files).ok());
    expect(refused(open("/dev/null", O_RDONLY)));
    expect(mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    abort();
  }
  int status = 0;
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "number %d fails",
            WEXITSTATUS(status));
}
