// SPDX-License-Identifier: Apache-2.0
// bellows-modeld and its loaders are killed at each of their system calls, and each that gives
// memory or descriptors fails: no program sees wrong data, nothing is loaded twice, and a daemon
// that is started again works. The short form takes some of the calls, BELLOWS_LONG=1 all.
#include <fcntl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/fault/trace_support.h"
#include "tests/unit/modelstore/model_store.h"

using namespace bellows;
using namespace bellows::model_test;
using fault_test::Call;
using fault_test::Tracer;
using fault_test::Verdict;

namespace {

constexpr const char* kLoader = HELPERS "/bellows-model-loader";
constexpr const char* kKeeper = HELPERS "/bellows-model-keeper";
constexpr std::size_t kBytes = 2'500'000;
/// How the program ends that uses the traced daemon.
constexpr int kServed = 0;
constexpr int kDaemonDied = 7;
constexpr int kWrongData = 5;
constexpr int kHangs = 6;
constexpr int kDoesNotEnd = 8;
constexpr int kLeaks = 9;
constexpr int kNoSentence = 10;

bool is_dead(pid_t process) {
  std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(stat, text);
  const auto name_end = text.rfind(") ");
  return name_end == std::string::npos || text[name_end + 2] == 'Z' || text[name_end + 2] == 'X';
}

/// How many descriptors of a process are memory of a model.
std::size_t memories(pid_t process) {
  std::size_t count = 0;
  std::error_code gone;
  const std::string folder = "/proc/" + std::to_string(process) + "/fd";
  for (std::filesystem::directory_iterator fd(folder, gone), end; !gone && fd != end;
       fd.increment(gone)) {
    std::error_code closed;
    count += has(std::filesystem::read_symlink(fd->path(), closed).string(), "memfd:bellows-model");
  }
  return count;
}

/// A store with model "m" in its keeper's hands, and "n", which is yet to be loaded.
class CrashScene {
 public:
  CrashScene() : m_(random_bytes(kBytes)), n_(random_bytes(kBytes, 2)) {
    store_.keeper_alone_s = 120;
    store_.add("m", m_);
    store_.add("n", n_);
    store_.start();
    keeper_ = store_.keeper();
    cr_assert(keeper_ > 0 && store_.open("m").ok());
    store_.stop();
  }
  CrashScene(const CrashScene&) = delete;
  CrashScene& operator=(const CrashScene&) = delete;
  ~CrashScene() { kill(keeper_, SIGKILL); }

  /// A daemon that takes m back and loads n, under the eyes of `on_call`.
  int run(Tracer::Scope scope, const std::function<Verdict(const Call&)>& on_call) {
    Tracer tracer(scope);
    int ended = -1;
    const pid_t daemon = tracer.start([&] { return become_daemon(); });
    const pid_t program = tracer.start([&] { return use(daemon); });
    tracer.on_call = on_call;
    tracer.on_end = [&](pid_t process, int status) {
      if (process == program && WIFEXITED(status)) ended = WEXITSTATUS(status);
      // One that the daemon started in the place of another would be waited for.
      for (const pid_t keeper : tracer.running(kKeeper))
        if (process == daemon) kill(keeper, SIGKILL);
    };
    return tracer.run(40) ? ended : kDoesNotEnd;
  }

  /// All that programs were told since it was asked last.
  std::string errors() const {
    std::ifstream file(errors_file());
    std::string text{std::istreambuf_iterator<char>(file), {}};
    std::filesystem::remove(errors_file());
    return text;
  }

  /// A daemon started after that serves both; and n is on the disk only again.
  void check(const std::string& point, bool keeps_m) {
    store_.start();
    const auto loads = [&](const char* name) { return store_.said("loaded " + store_.file(name)); };
    const std::size_t loads_of_n = loads("n");
    for (int i = 0; i < 2; ++i) {
      cr_expect(store_.open("m").data("w") == m_, "m, %s", point.c_str());
      cr_expect(store_.open("n").data("w") == n_, "n, %s", point.c_str());
    }
    cr_expect(loads("n") <= loads_of_n + 1, "%s: n was loaded twice", point.c_str());
    cr_expect(!keeps_m || loads("m") == 1, "%s: m was loaded again", point.c_str());
    ControlClient control(store_);
    cr_expect(
        eventually([&] { return control.call(modelwire::ControlOp::evict, "a", "n").empty(); }),
        "%s: n has a user still", point.c_str());
    store_.stop();
  }

 private:
  int become_daemon() {
    const int null = open("/dev/null", O_RDWR);
    dup2(null, 2);
    std::vector<std::string> words = store_.command();
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    return 127;
  }

  /// Opens both as long as the daemon lives, and ends it.
  int use(pid_t daemon) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(15);
    for (;;) {
      const OpenModel m = store_.open("m", "a", 300), n = store_.open("n", "a", 300);
      for (const OpenModel* each : {&m, &n})
        if (!each->ok() && !note(each->error())) return kNoSentence;
      if ((m.ok() && m.data("w") != m_) || (n.ok() && n.data("w") != n_)) return kWrongData;
      if (is_dead(daemon)) return kDaemonDied;
      const bool hangs = std::chrono::steady_clock::now() > end;
      if (!hangs && (!m.ok() || !n.ok())) continue;
      // What a load had that failed is gone, too.
      const bool leaks = !hangs && !eventually([&] { return memories(daemon) <= 2; });
      kill(daemon, SIGTERM);
      return hangs ? kHangs : leaks ? kLeaks : kServed;
    }
  }

  /// What a program is told of a model that it does not get. False: it is no sentence.
  bool note(const std::string& told) const {
    std::ofstream(errors_file(), std::ios::app) << told << '\n';
    return told.find(' ') != std::string::npos;
  }
  std::string errors_file() const { return store_.path() + "/errors"; }

  const std::string m_, n_;
  ModelStore store_;
  pid_t keeper_ = 0;
};

/// Which calls of so many are tried: all in the long form, else some from all parts.
int stride(int calls) {
  const char* is_long = std::getenv("BELLOWS_LONG");
  return is_long && *is_long == '1' ? 1 : std::max(1, calls / 12);
}

/// Whether a write rings an event of another thread. Linux never fails that, and nobody could tell
/// the thread in another way.
bool rings(const Call& call) {
  std::error_code gone;
  const auto file = std::filesystem::read_symlink(
      "/proc/" + std::to_string(call.process) + "/fd/" + std::to_string(call.args[0]), gone);
  return has(file.string(), "[eventfd]");
}

/// Calls that Linux never fails, or whose error means nothing: a descriptor is closed all the same.
bool can_fail(const Call& call, const Verdict& verdict) {
  // Written to are events and sockets only, which need no room.
  if (call.number == SYS_write && (verdict.error != EIO || rings(call))) return false;
  if (call.number == SYS_exit_group) return false;
  return call.number != SYS_geteuid && call.number != SYS_getpid && call.number != SYS_getppid &&
         call.number != SYS_close;
}

/// Does this to one call after another of a program, and checks what is left after each.
void sweep(const char* program, Tracer::Scope scope, const Verdict& verdict, bool keeps_m) {
  if (const auto why = Tracer::cannot_run(); !why.empty()) cr_skip_test("%s", why.c_str());
  CrashScene scene;
  int calls = 0;
  cr_assert_eq(scene.run(scope,
                         [&](const Call& call) -> Verdict {
                           calls += call.program == program && can_fail(call, verdict);
                           return {};
                         }),
               kServed);
  scene.check("unharmed", true);
  cr_assert_gt(calls, 10);
  const int step = stride(calls);
  for (int point = 0; point < calls; point += step) {
    int seen = 0;
    std::string name = "not reached";
    const int ended = scene.run(scope, [&](const Call& call) -> Verdict {
      if (call.program != program || !can_fail(call, verdict) || seen++ != point) return {};
      name = fault_test::call_name(call.number);
      return verdict;
    });
    const std::string where = "call " + std::to_string(point) + ", " + name;
    cr_expect(ended == kServed || ended == kDaemonDied, "%s: the program ends with %d",
              where.c_str(), ended);
    scene.check(where, keeps_m);
  }
}

constexpr Verdict kBefore = {Verdict::What::kill_before, 0, 0};
constexpr Verdict kAfter = {Verdict::What::kill_after, 0, 0};
constexpr Verdict kNoMemory = {Verdict::What::fail, ENOMEM, 0};
constexpr Verdict kBroken = {Verdict::What::fail, EIO, 0};
constexpr Verdict kNoSpace = {Verdict::What::fail, ENOSPC, 0};
constexpr Verdict kNoDescriptor = {Verdict::What::fail, EMFILE, 0};

}  // namespace

Test(model_crash, of_the_daemon_before_a_call, .timeout = 3000) {
  sweep(MODELD, Tracer::Scope::all_calls, kBefore, true);
}
Test(model_crash, of_the_daemon_after_a_call, .timeout = 3000) {
  sweep(MODELD, Tracer::Scope::all_calls, kAfter, true);
}
Test(model_crash, of_a_loader, .timeout = 3000) {
  sweep(kLoader, Tracer::Scope::all_calls, kAfter, true);
}
Test(model_crash, the_daemon_gets_no_memory, .timeout = 3000) {
  sweep(MODELD, Tracer::Scope::memory, kNoMemory, false);
}
Test(model_crash, the_daemon_gets_no_descriptor, .timeout = 3000) {
  sweep(MODELD, Tracer::Scope::memory, kNoDescriptor, false);
}
Test(model_crash, a_loader_gets_no_memory, .timeout = 3000) {
  sweep(kLoader, Tracer::Scope::memory, kNoMemory, true);
}
Test(model_crash, the_daemon_gets_no_room, .timeout = 3000) {
  sweep(MODELD, Tracer::Scope::memory, kNoSpace, false);
}
Test(model_crash, a_loader_gets_no_room, .timeout = 3000) {
  sweep(kLoader, Tracer::Scope::memory, kNoSpace, true);
}

/// The call with which a model's memory is made, or a loader fills it, fails once.
Test(model_crash, who_gets_no_model_for_lack_of_memory_is_told_so, .timeout = 600) {
  if (const auto why = Tracer::cannot_run(); !why.empty()) cr_skip_test("%s", why.c_str());
  struct Lack {
    const char* program;
    std::uint64_t call;
    const char* says;
  };
  constexpr Lack kLacks[] = {{MODELD, SYS_memfd_create, "bytes of memory: "},
                             {MODELD, SYS_ftruncate, "bytes of memory: "},
                             {kLoader, SYS_pwrite64, "there is no memory for the model's "}};
  CrashScene scene;
  for (const Lack& lack : kLacks)
    for (const int error : {ENOMEM, ENOSPC}) {
      bool hit = false;
      const int ended = scene.run(Tracer::Scope::all_calls, [&](const Call& call) -> Verdict {
        if (hit || call.program != lack.program || call.number != lack.call) return {};
        hit = true;
        return {Verdict::What::fail, error, 0};
      });
      const std::string told = scene.errors();
      cr_expect(hit && ended == kServed, "%s, %d: the program ends with %d", lack.says, error,
                ended);
      cr_expect(has(told, lack.says) && has(told, std::strerror(error)), "%s, %d: %s", lack.says,
                error, told.c_str());
      scene.check(lack.says, true);
    }
}

Test(model_crash, calls_of_a_loader_fail, .timeout = 3000) {
  sweep(kLoader, Tracer::Scope::all_calls, kBroken, true);
}
Test(model_crash, calls_of_the_daemon_fail, .timeout = 3000) {
  sweep(MODELD, Tracer::Scope::all_calls, kBroken, false);
}
