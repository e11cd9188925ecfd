// SPDX-License-Identifier: Apache-2.0
// A user's cache of images, with a skopeo that is a script.
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "common/text.h"
#include "image/cache/cache.h"
#include "image/fetch/credentials.h"
#include "image/layout/rc_script.h"
#include "tests/unit/image/layer_files.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace bellows::image;

TestSuite(image_cache, .timeout = 60);
TestSuite(image_credentials, .timeout = 20);

namespace {

/// Notes what it was asked for; what it says, and whether it fails, is in files.
constexpr const char* kSkopeo = R"sh(#!/bin/sh
here=${0%/*}
for last; do :; done
echo "$*" >> "$here/asked"
case "$*" in *--authfile*) file=${*#*--authfile }; cat "${file%% *}" > "$here/login" ;; esac
case "$*" in
  *inspect*) [ -e "$here/fail" ] && sleep 1
    cat "$here/manifest" ;;
  *copy*)
    to=${last#oci:}
    [ -e "$here/stall" ] && exec sleep 60
    [ -e "$here/trickle" ] && for i in $(seq 100); do
      printf x >> "${to%:image}/part"
      sleep 0.1
    done
    [ -e "$here/slow" ] && sleep 1
    cp -r "$here/layout/." "${to%:image}" ;;
esac
[ ! -e "$here/fail" ] || { cat "$here/fail" >&2; exit 1; }
)sh";

std::string text_of(const std::string& path) {
  const auto text = read_file(path, 1 << 20);
  return text ? *text : "?";
}

/// A registry with one image of one file, and a cache.
class World {
 public:
  World() {
    write("skopeo", kSkopeo, 0755);
    ::setenv("PATH", (scratch_.path() + ":/usr/bin:/bin").c_str(), 1);
    ::setenv("HOME", scratch_.path().c_str(), 1);
    ::unsetenv("ENROOT_CONFIG_PATH");
    ::unsetenv("XDG_CONFIG_HOME");
    serve("one");
  }

  /// What the name stands for from now on.
  void serve(const std::string& content, const std::string& workdir = "/w/d") {
    std::filesystem::remove_all(path("layout"));
    std::filesystem::create_directories(path("layout/blobs/sha256"));
    const std::string tar = tar_of({file("f", content)});
    const std::string blob = tar_of({file("f", content)}, Packing::gzip);
    const std::string config = R"({"config": {"Env": ["A=1"], "WorkingDir": ")" + workdir +
                               R"("}, "rootfs": {"diff_ids": [")" + *digest_of(tar) + "\"]}}";
    const std::string manifest =
        "{\"config\": " + put(config) + ", \"layers\": [" + put(blob) + "]}";
    write("layout/index.json", "{\"manifests\": [" + put(manifest) + "]}");
    write("manifest", manifest);
    layer = path("layout/blobs/sha256/") + hex_of(*digest_of(blob));
  }

  void write(const std::string& name, const std::string& text, mode_t mode = 0644) const {
    cr_assert(replace_file(path(name), text, mode).ok());
  }
  std::string path(const std::string& name) const { return scratch_.path() + "/" + name; }

  /// "PATH" or "! " and the sentence.
  std::string import(bool* reused = nullptr, const std::string& name = "h.org#x:1") const {
    const auto cache = Cache::open(path("cache"));
    cr_assert(cache.ok(), "%s", cache.error().text.c_str());
    const auto imported = cache->import(*container::parse_reference(name), options);
    if (imported && reused != nullptr) *reused = imported->reused;
    return imported ? imported->image.path : "! " + imported.error().text;
  }

  std::size_t asked(const std::string& verb) const {
    std::size_t count = 0;
    const std::string all = text_of(path("asked"));
    for (const auto line : split(all, '\n')) count += line.find(verb) != std::string_view::npos;
    return count;
  }
  std::size_t files_in(const std::string& name) const {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(path(name)))
      ++count;
    return count;
  }

  ImportOptions options;
  std::string layer;  ///< the file with the layer

 private:
  /// A blob of the layout, and its descriptor.
  std::string put(const std::string& data) const {
    const std::string digest = *digest_of(data);
    write("layout/blobs/sha256/" + hex_of(digest), data);
    return "{\"digest\": \"" + digest + "\", \"size\": " + std::to_string(data.size()) + "}";
  }
  ScratchDir scratch_;
};

void like(const std::string& found, const std::string& wanted) {
  cr_expect(found.find(wanted) != std::string::npos, "\"%s\" without \"%s\"", found.c_str(),
            wanted.c_str());
}

}  // namespace

Test(image_cache, an_image_is_fetched_once) {
  World world;
  bool reused = true;
  const std::string path = world.import(&reused);
  like(path, "/rootfs");
  cr_expect(not(reused));
  cr_expect(text_of(path + "/f") == "one");
  cr_expect(text_of(path + "/etc/environment") == "A=1\n");
  like(text_of(path + "/etc/rc"), "cd \"/w/d\" && unset OLDPWD || exit 1\n");
  cr_expect(std::filesystem::is_directory(path + "/w/d"));
  cr_expect(world.import(&reused) == path && reused);
  cr_expect(world.asked("copy") == 1 && world.asked("inspect") == 2);
  like(text_of(world.path("asked")), "copy docker://h.org/x@sha256:");
  cr_expect(world.files_in("cache/partial") == 0);
}

Test(image_cache, a_digest_means_what_it_says_without_a_registry) {
  World world;
  const std::string digest = *digest_of(text_of(world.path("manifest")));
  const std::string other = "sha256:" + std::string(64, '0');
  world.import(nullptr, "h.org#x@" + other);
  like(text_of(world.path("asked")), "copy docker://h.org/x@" + other);
  cr_expect(world.asked("inspect") == 0, "what the registry says of it is taken");
  const std::string path = world.import();
  bool reused = false;
  world.write("fail", "no route to host");
  cr_expect(world.import(&reused, "h.org#x@" + digest) == path && reused);
}

Test(image_cache, a_directory_that_is_a_file_is_not_made) {
  World world;
  for (const char* workdir : {"/f/x", "/a/../b"}) {
    world.serve("one", workdir);
    cr_expect(text_of(world.import() + "/f") == "one", "%s", workdir);
  }
}

Test(image_cache, a_name_may_come_to_mean_another_image) {
  World world;
  const std::string first = world.import();
  world.serve("two");
  const std::string second = world.import();
  cr_expect(first != second && text_of(first + "/f") == "one" && text_of(second + "/f") == "two");
  const auto cache = Cache::open(world.path("cache"));
  const auto images = cache->list();
  cr_assert(images.ok() && images->size() == 2);
  cr_expect((*images)[0].path == second || (*images)[1].path == second);
  for (const auto& image : *images) {
    cr_expect(image.names.size() == (image.path == second ? 1U : 0U));
    cr_expect(cache->remove(image.digest).ok());
  }
  cr_expect(world.files_in("cache/images") == 0 && world.files_in("cache/names") == 0);
  cr_expect(not(cache->remove(images->front().digest).ok()));
}

Test(image_cache, an_image_in_use_stays) {
  World world;
  world.options.user = "job 7 on n1";
  const auto cache = Cache::open(world.path("cache"));
  auto imported = cache->import(*container::parse_reference("h.org#x:1"), world.options);
  cr_assert(imported.ok() && imported->lease);
  const std::string digest = imported->image.digest;
  cr_expect(cache->list()->front().users == std::vector<std::string>({"job 7 on n1"}));
  // Later steps of a job find it held; other jobs hold it too.
  cr_expect(not(cache->import(*container::parse_reference("h.org#x:1"), world.options)->lease));
  world.options.user = "job 8 on n2";
  auto other = cache->import(*container::parse_reference("h.org#x:1"), world.options);
  cr_assert(other.ok() && other->lease);
  imported->lease.reset();
  const auto refused = cache->remove(digest);
  cr_assert(not(refused.ok()) && refused.error().kind == ErrorKind::busy);
  like(refused.error().text, "is used by job 8 on n2; remove it when this");
  cr_expect(std::filesystem::exists(other->image.path + "/f"));
  other->lease.reset();
  cr_expect(cache->list()->front().users.empty());
  cr_expect(cache->remove(digest).ok() && world.files_in("cache/uses") == 0);
}

Test(image_cache, a_new_image_makes_room) {
  World world;
  std::vector<std::string> said;
  world.options.say = [&](const std::string& sentence) { said.push_back(sentence); };
  world.options.budget = 5000;  // each has 2048 bytes as a tar file
  std::vector<std::string> paths;
  const auto age = [](const std::string& root, int number) {
    const timespec used[2] = {{1000 + number, 0}, {1000 + number, 0}};
    cr_assert(::utimensat(AT_FDCWD, (root + "/../image.json").c_str(), used, 0) == 0);
  };
  const auto import = [&](int number) {
    world.serve(std::string(100, static_cast<char>('a' + number)));
    paths.push_back(world.import());
    like(paths.back(), "/rootfs");
    age(paths.back(), number);
  };
  const auto there = [&] {
    std::string all;
    for (const auto& path : paths) all += std::filesystem::exists(path + "/f") ? 'y' : 'n';
    return all;
  };
  import(0);
  world.options.user = "job 2 on n1";
  auto first = Cache::open(world.path("cache"))
                   ->import(*container::parse_reference("h.org#x:1"), world.options);
  cr_assert(first.ok() && first->reused && first->lease);
  age(paths[0], 0);
  world.options.user.clear();
  import(1);
  cr_expect(there() == "yy", "%s", there().c_str());
  // The oldest is in use.
  import(2);
  cr_expect(there() == "yny", "%s", there().c_str());
  like(said.back(), "from the cache to keep to its budget");
  // Nor does the new one go, whatever the budget.
  world.options.budget = 10;
  import(3);
  cr_expect(there() == "ynny", "%s", there().c_str());
  like(said.back(), "more than its budget of 10 bytes, in images that jobs use");
  first->lease.reset();
  import(4);
  cr_expect(there() == "nnnny", "%s", there().c_str());
}

Test(image_cache, what_imports_left_goes_in_time) {
  World world;
  cr_assert(Cache::open(world.path("cache")).ok());
  const auto leave = [&](const std::string& name, time_t when) {
    const std::string path = world.path("cache/partial/" + name);
    std::filesystem::create_directories(path + "/layout");
    const timespec times[2] = {{when, 0}, {when, 0}};
    cr_assert(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
  };
  leave(std::string(64, 'a'), 1000);
  leave(std::string(64, 'b'), ::time(nullptr) - 3600);
  leave("other", 1000);
  like(world.import(), "/rootfs");
  cr_expect(world.files_in("cache/partial") == 2);
  cr_expect(not(std::filesystem::exists(world.path("cache/partial/" + std::string(64, 'a')))));
}

Test(image_cache, what_was_changed_is_seen) {
  World world;
  const std::string path = world.import();
  const auto cache = Cache::open(world.path("cache"));
  const std::string digest = cache->list()->front().digest;
  cr_expect(cache->verify(digest).ok());
  for (const char* command : {"echo x > $0/new", "rm $0/new; chmod 0755 $0/f",
                              "chmod 0644 $0/f; ln -s f $0/l", "rm $0/l; printf two > $0/f"}) {
    cr_assert(::system((std::string("sh -c '") + command + "' " + path).c_str()) == 0);
    cr_expect(not(cache->verify(digest).ok()), "%s", command);
  }
  cr_assert(::system(("printf one > " + path + "/f").c_str()) == 0);
  cr_expect(cache->verify(digest).ok());
}

Test(image_cache, imports_at_once_do_the_work_once) {
  World world;
  world.write("slow", "");
  for (int i = 0; i < 8; ++i)
    if (::fork() == 0) ::_exit(world.import().starts_with('/') ? 0 : 1);
  int good = 0;
  for (int status = 0; ::wait(&status) > 0;) good += WIFEXITED(status) && WEXITSTATUS(status) == 0;
  cr_expect(good == 8, "%d of 8", good);
  cr_expect(world.asked("copy") == 1, "%zu copies", world.asked("copy"));
  cr_expect(world.asked("inspect") == 1, "%zu questions", world.asked("inspect"));
}

Test(image_cache, imports_at_once_fail_at_once) {
  World world;
  world.write("fail", "msg=\"manifest unknown\"");
  for (int i = 0; i < 8; ++i)
    if (::fork() == 0)
      ::_exit(world.import().starts_with("! failed to import docker image: h.org/x:1: manifest")
                  ? 0
                  : 1);
  int good = 0;
  for (int status = 0; ::wait(&status) > 0;) good += WIFEXITED(status) && WEXITSTATUS(status) == 0;
  cr_expect(good == 8, "%d of 8", good);
  cr_expect(world.asked("inspect") == 1, "%zu questions", world.asked("inspect"));
  // Whoever comes later asks anew.
  std::filesystem::remove(world.path("fail"));
  like(world.import(), "/rootfs");
}

Test(image_cache, what_is_damaged_is_not_kept) {
  World world;
  std::string bytes = text_of(world.layer);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  const std::string whole = text_of(world.layer);
  cr_assert(replace_file(world.layer, bytes, 0644).ok());
  like(world.import(), "! the layer sha256:");
  cr_expect(world.files_in("cache/images") == 0 && world.files_in("cache/partial") == 0);
  cr_assert(replace_file(world.layer, whole, 0644).ok());
  like(world.import(), "/rootfs");
}

Test(image_cache, what_was_left_by_a_kill_is_used_or_removed) {
  World world;
  world.write("fail", "time=x level=fatal msg=\"the network \\\"broke\\\"\"\n");
  like(world.import(), "the network \"broke\"; look at");
  std::filesystem::remove(world.path("fail"));
  world.write("stall", "");
  world.options.fetch.stall_seconds = 1;
  like(world.import(), "! the registry h.org has sent nothing for 1 s");
  cr_expect(world.files_in("cache/partial") == 1);
  const std::string partial =
      std::filesystem::directory_iterator(world.path("cache/partial"))->path();
  std::filesystem::create_directories(partial + "/rootfs/left");
  std::filesystem::remove(world.path("stall"));
  const std::string path = world.import();
  like(path, "/rootfs");
  cr_expect(not(std::filesystem::exists(path + "/left")));
  cr_expect(world.files_in("cache/partial") == 0);
}

Test(image_cache, a_registry_that_trickles_is_given_up) {
  World world;
  world.write("trickle", "");
  world.options.fetch.stall_seconds = 2;
  const std::string said = world.import();
  like(said, "! the registry h.org has sent no more than ");
  like(said, " bytes in 2 s; import the image again later");
}

Test(image_cache, limits) {
  World world;
  world.options.fetch.most_bytes = 10;
  world.write("slow", "");
  world.options.limits.bytes = 100;
  like(world.import(), "more than");
  cr_expect(world.files_in("cache/images") == 0);
}

Test(image_cache, directories_of_others) {
  World world;
  for (const std::string& path : {std::string("relative"), world.path("a:b"), std::string()})
    cr_expect(not(Cache::open(path).ok()));
  std::filesystem::create_directory(world.path("open"));
  std::filesystem::permissions(world.path("open"), std::filesystem::perms::all);
  cr_expect(not(Cache::open(world.path("open")).ok()));
  std::filesystem::create_directory_symlink(world.path("open"), world.path("link"));
  cr_expect(not(Cache::open(world.path("link")).ok()));
  cr_assert(::mkfifo(world.path("fifo").c_str(), 0600) == 0);
  cr_expect(not(Cache::open(world.path("fifo")).ok()));
  if (::geteuid() == 0) {
    std::filesystem::create_directory(world.path("other"));
    cr_assert(::chown(world.path("other").c_str(), 12345, 12345) == 0);
    const auto cache = Cache::open(world.path("other"));
    cr_assert(not(cache.ok()) && cache.error().kind == ErrorKind::denied);
    cr_expect(std::filesystem::is_empty(world.path("other")));
  }
  cr_expect(Cache::open(world.path("new/deep")).ok());
}

Test(image_cache, a_working_directory_is_no_shell_text) {
  ImageConfig config;
  config.workdir = "/a $(touch /x) \"`b`\\";
  like(rc_text(config), "cd \"/a \\$(touch /x) \\\"\\`b\\`\\\\\" &&");
  config.workdir = "relative";
  like(rc_text(config), "cd \"/\" &&");
  config.workdir = "/a\nb";
  like(rc_text(config), "cd \"/\" &&");
}

Test(image_cache, an_entrypoint_comes_before_the_command) {
  ImageConfig config;
  like(rc_text(config), "then\n    exec \"$@\"\nelse\n    exec '/bin/sh'\nfi\n");
  config.command = {"serve", "it's $(here)"};
  like(rc_text(config), "then\n    exec \"$@\"\nelse\n    exec 'serve' 'it'\\''s $(here)'\nfi\n");
  config.entrypoint = {"/entry", "-x"};
  like(rc_text(config),
       "exec '/entry' '-x' \"$@\"\nelse\n    exec '/entry' '-x' 'serve' 'it'\\''s $(here)'\n");
}

Test(image_credentials, of_a_registry_and_a_user) {
  ::setenv("TOKEN", "t0k", 1);
  const char* netrc =
      "machine auth.docker.io login hub password p1\n"
      "machine h.org login ann password p2\nmachine h.org login bob password $TOKEN\n"
      "machine nvcr.io login $oauthtoken password ${TOKEN}\n"
      "machine aws.org login AWS password $(aws ecr get-login-password) machine last";
  const auto password = [&netrc](const char* name) -> std::string {
    const auto login = find_login(netrc, *container::parse_reference(name));
    if (!login) return login.error().text;
    return *login ? (*login)->user + "/" + (*login)->password : "none";
  };
  cr_expect(password("ubuntu") == "hub/p1");
  cr_expect(password("h.org#x") == "ann/p2");
  cr_expect(password("bob@h.org#x") == "bob/t0k");
  cr_expect(password("eve@h.org#x") == "none");
  cr_expect(password("nvcr.io#nvidia/x") == "$oauthtoken/t0k");
  cr_expect(password("h.org:5000#x") == "ann/p2");
  cr_expect(password("other.org#x") == "none");
  like(password("aws.org#x"), "of AWS for aws.org is a command in enroot's credentials");
  netrc = "machine registry-1.docker.io login hub password p3";
  cr_expect(password("ubuntu") == "hub/p3");
  cr_expect(*auth_file_text("h.org", {"ann", "p2"}) ==
            R"({"auths":{"h.org":{"auth":"YW5uOnAy"}}})");
}

Test(image_credentials, are_given_to_nobody_else) {
  World world;
  std::filesystem::create_directories(world.path(".config/enroot"));
  world.write(".config/enroot/.credentials", "machine h.org login ann password secret\n", 0600);
  like(world.import(), "/rootfs");
  like(text_of(world.path("asked")), "--authfile /proc/" + std::to_string(::getpid()) + "/fd/");
  like(text_of(world.path("login")), R"({"auths":{"h.org":{"auth":"YW5uOnNlY3JldA=="}}})");
  cr_expect(text_of(world.path("asked")).find("secret") == std::string::npos);
  cr_expect(world.files_in("cache/partial") == 0);
}
