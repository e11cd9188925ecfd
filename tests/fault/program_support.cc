// SPDX-License-Identifier: Apache-2.0
#include "tests/fault/program_support.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "checkpoint/store.h"
#include "checkpoint/store_names.h"
#include "tests/unit/checkpoint_support.h"

namespace bellows::fault_test {

namespace fs = std::filesystem;
using checkpoint_test::eventually;

namespace {

constexpr std::uint64_t kRows = 1500;
constexpr std::uint64_t kWeights = 700;
constexpr const char* kLeft = "/.tmp-9-node.1.1";

/// The arrays of one rank.
class Arrays {
 public:
  Arrays(int rank, int world) : first_(world == 1 || rank == 0 ? 0 : kRows / 3) {
    x_.resize(world == 1 ? kRows : rank == 0 ? kRows / 3 : kRows - kRows / 3);
    weights_.resize(kWeights);
  }

  int add_to(bellows_t* b) {
    const int rc = bellows_register(b, "x", BELLOWS_U64, 1, &kRows, BELLOWS_SHARDED, first_,
                                    x_.size(), x_.data());
    return rc != BELLOWS_OK ? rc
                            : bellows_register(b, "weights", BELLOWS_U64, 1, &kWeights,
                                               BELLOWS_REPLICATED, 0, 0, weights_.data());
  }
  void train_to(std::uint64_t step) {
    for (std::uint64_t i = 0; i < x_.size(); ++i) x_[i] = value_at(step, first_ + i);
    for (std::uint64_t i = 0; i < kWeights; ++i) weights_[i] = ~value_at(step, i);
  }
  bool are_of(std::uint64_t step) const {
    for (std::uint64_t i = 0; i < x_.size(); ++i) {
      if (x_[i] != value_at(step, first_ + i)) return false;
    }
    for (std::uint64_t i = 0; i < kWeights; ++i) {
      if (weights_[i] != ~value_at(step, i)) return false;
    }
    return true;
  }

 private:
  std::uint64_t first_;
  std::vector<std::uint64_t> x_, weights_;
};

/// A rank's life.
class Rank {
 public:
  Rank(int rank, int world, Board& board) : rank_(rank), board_(board), arrays_(rank, world) {
    bellows_config config = BELLOWS_CONFIG_INIT;
    config.rank = rank;
    config.world = world;
    config.keep = kBaseSteps;
    rc_ = bellows_init(&config, &b_);
    if (rc_ == BELLOWS_OK) rc_ = arrays_.add_to(b_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  bool good() const { return rc_ >= 0; }
  std::uint64_t step() const { return step_; }

  void restore() {
    rc_ = bellows_restore(b_, &step_);
    if (rc_ == BELLOWS_OK && !arrays_.are_of(step_)) {
      rc_ = BELLOWS_ERR_CORRUPT;
      note(fmt::format("the arrays are not those of step {}", step_));
    }
  }
  void save(const Plan& plan) {
    ++step_;
    for (int tries = 0; tries <= plan.retries; ++tries) {
      arrays_.train_to(step_);
      rc_ = plan.async ? save_async() : bellows_save(b_, step_);
      if (rc_ == BELLOWS_OK) break;
      ++board_.failed[rank_];
      board_.code[rank_] = rc_;
      note(bellows_error(b_));
      if (rc_ == BELLOWS_ERR_AGENT || !old_steps_are_whole()) break;
    }
    if (rc_ == BELLOWS_OK && !plan.async) board_.acknowledged[rank_] = step_;
  }
  void wait() {
#ifdef BELLOWS_ARRAY_INIT
    rc_ = bellows_wait(b_);
    if (rc_ == BELLOWS_OK) board_.acknowledged[rank_] = step_;
#endif
  }
  void lose_partner() { rc_ = BELLOWS_ERR_IO; }
  /// The exit status of a rank that comes to its end, or gives up.
  int leave() {
    if (!good()) note(bellows_error(b_));
    const int before = rc_;
    rc_ = bellows_finalize(b_, good() ? 1 : 0);
    if (before == BELLOWS_ERR_CORRUPT || before == BELLOWS_ERR_INVALID) return 5;
    return before >= 0 && rc_ == BELLOWS_OK ? 0 : kGaveUp;
  }

 private:
  int save_async() {
#ifdef BELLOWS_ARRAY_INIT
    const int rc = bellows_save_async(b_, step_);
    if (rc == BELLOWS_OK) board_.copied[rank_] = step_;
    // The copy is the agent's: what becomes of these is nobody's business.
    arrays_.train_to(~step_);
    std::uint64_t saved = 0;
    if (bellows_saved_step(b_, &saved) == BELLOWS_OK) board_.acknowledged[rank_] = saved;
    return rc;
#else
    return BELLOWS_ERR_INVALID;
#endif
  }
  // A save that failed has left them as they were.
  bool old_steps_are_whole() {
    const std::string dir = getenv("BELLOWS_CHECKPOINT_DIR");
    const auto manifest = verify_step(dir, step_ - 1);
    if (rank_ != 0 || manifest) return true;
    rc_ = BELLOWS_ERR_CORRUPT;
    note(manifest.error().text);
    return false;
  }
  void note(const std::string& text) {
    if (text.empty()) return;
    std::snprintf(board_.text, sizeof board_.text, "rank %d: %s", rank_, text.c_str());
  }

  int rank_;
  Board& board_;
  Arrays arrays_;
  bellows_t* b_ = nullptr;
  int rc_ = 0;
  std::uint64_t step_ = 0;
};

/// Whether the partner has come this far.
bool meet(int mine, int theirs) {
  char byte = 'x';
  return write(theirs, &byte, 1) == 1 && read(mine, &byte, 1) == 1;
}

// Those of the agent that owns the directory. Waits for the last save's threads to close theirs.
void count_descriptors(Board& board, const std::string& dir) {
  const auto owner = read_file(dir + "/owner.json", 4096);
  const auto at = owner ? owner->find("node.") : std::string::npos;
  if (at == std::string::npos) return;
  const std::string fds = fmt::format("/proc/{}/fd", std::atoi(owner->c_str() + at + 5));
  const auto count = [&] {
    std::error_code code;
    return static_cast<std::uint32_t>(
        std::distance(fs::directory_iterator(fds, code), fs::directory_iterator()));
  };
  const std::uint32_t most = board.open;
  eventually([&] { return most == 0 || count() <= most; }, 2000);
  board.open = count();
}

int run_rank(int number, const Plan& plan, Board& board, int mine, int theirs) {
  char byte = 'x';
  // The second rank starts when the first has its agent.
  if (number == 1 && read(mine, &byte, 1) != 1) return kGaveUp;
  Rank rank(number, kWorld, board);
  if (!rank.good()) return rank.leave();
  board.joined[number] = true;
  const bool both = number == 0 ? meet(mine, theirs) : write(theirs, &byte, 1) == 1;
  if (!both) {
    rank.leave();
    return kGaveUp;
  }
  rank.restore();
  board.restored[number] = rank.good();
  if (rank.good() && !meet(mine, theirs)) rank.lose_partner();
  for (int i = 0; i < plan.saves && rank.good(); ++i) rank.save(plan);
  if (plan.async && rank.good()) rank.wait();
  if (rank.good() && meet(mine, theirs)) {
    if (number == 0) count_descriptors(board, getenv("BELLOWS_CHECKPOINT_DIR"));
    (void)meet(mine, theirs);
  }
  return rank.leave();
}

// In a fresh process: restores as a single rank, whatever the world was, and goes on training.
int restore_and_save(Board& board, const std::string& dir, std::uint64_t acknowledged) {
  const auto fails = [&](const std::string& why) {
    if (!why.empty()) std::snprintf(board.text, sizeof board.text, "%s", why.c_str());
    return 1;
  };
  const auto there = list_steps(dir);
  Rank rank(0, 1, board);
  if (rank.good()) rank.restore();
  if (!rank.good()) {
    rank.leave();
    return fails("");
  }
  const std::uint64_t step = rank.step();
  if (step < acknowledged) return fails(fmt::format("step {} comes back", step));
  if (!there || std::find(there->begin(), there->end(), step) == there->end()) {
    return fails(fmt::format("step {} comes back, which was not committed", step));
  }
  const auto names = list_names(dir);
  for (const std::string& name : *names) {
    if (name.starts_with(".tmp-")) return fails(name + " is still there after a start");
  }
  rank.save({});
  return rank.leave();
}

int exit_status(pid_t pid) {
  int status = 0;
  if (!eventually([&] { return waitpid(pid, &status, WNOHANG) == pid; }, 20000)) {
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 200 + WTERMSIG(status);
}

// The agent of a program holds this lock as long as it lives.
bool agent_is_gone(const std::string& checkpoints) {
  const int lock = open((checkpoints + "/.in-use").c_str(), O_RDWR | O_CLOEXEC);
  const bool gone = lock < 0 || eventually([&] { return flock(lock, LOCK_EX | LOCK_NB) == 0; });
  if (lock >= 0) close(lock);
  return gone;
}

}  // namespace

Scene::Scene(const char* agent) : agent_(agent) {
  // Tens of thousands of fsyncs: in memory, where there is room for it.
  char in_memory[] = "/dev/shm/bellows-test-XXXXXX", on_disk[] = "/tmp/bellows-test-XXXXXX";
  root_ = mkdtemp(in_memory) ? in_memory : mkdtemp(on_disk);
  const std::string shared = root_ + "/board";
  const Fd board(open(shared.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (ftruncate(board.get(), 4096) < 0) abort();
  board_ =
      static_cast<Board*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, board.get(), 0));
  fs::create_directory(root_ + "/run");
  setenv("BELLOWS_TEST_BOARD", shared.c_str(), 1);
  setenv("BELLOWS_AGENT", agent, 1);
  setenv("XDG_RUNTIME_DIR", (root_ + "/run").c_str(), 1);
  setenv("BELLOWS_CHECKPOINT_DIR", checkpoints().c_str(), 1);
  setenv("SLURMD_NODENAME", "node", 1);
  for (const char* name : {"BELLOWS_SOCKET", "BELLOWS_RANK", "BELLOWS_WORLD_SIZE",
                           "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK"}) {
    unsetenv(name);
  }
  signal(SIGPIPE, SIG_IGN);
  reset();
  pid_t pids[kWorld];
  for (int r = 0; r < kWorld; ++r) {
    const auto program = rank(r, {.saves = kBaseSteps});
    pids[r] = fork();
    if (pids[r] == 0) _exit(program());
  }
  started();
  for (pid_t pid : pids) {
    if (exit_status(pid) != 0 || !agent_is_gone(checkpoints())) {
      std::fprintf(stderr, "the first program failed: %s\n", board_->text);
      abort();
    }
  }
  fs::rename(checkpoints(), root_ + "/base");
  fs::create_directory(root_ + "/base" + kLeft);
  std::ofstream(root_ + "/base" + kLeft + "/shard-00000-of-00002.h5") << "half";
}

Scene::~Scene() {
  std::error_code ignored;
  fs::remove_all(root_, ignored);
  munmap(board_, 4096);
}

void Scene::reset() {
  fs::remove_all(checkpoints());
  if (fs::exists(root_ + "/base")) {
    fs::copy(root_ + "/base", checkpoints(),
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  }
  board_ = new (board_) Board{};
  for (auto& pipe : pipes_) {
    if (pipe2(pipe, O_CLOEXEC) < 0) abort();
  }
}

std::function<int()> Scene::rank(int number, const Plan& plan) {
  return [this, number, plan] {
    const int other = 1 - number;
    close(pipes_[number][1]);
    close(pipes_[other][0]);
    return run_rank(number, plan, *board_, pipes_[number][0], pipes_[other][1]);
  };
}

void Scene::started() {
  for (auto& pipe : pipes_) {
    close(pipe[0]);
    close(pipe[1]);
  }
}

std::string Scene::check(bool agent_killed) {
  std::uint64_t acknowledged = kBaseSteps;
  for (const auto& step : board_->acknowledged) {
    acknowledged = std::max(acknowledged, step.load());
  }
  if (!agent_killed) {
    acknowledged =
        std::max(acknowledged, std::min(board_->copied[0].load(), board_->copied[1].load()));
  }
  const std::string wrong = check_directory(acknowledged);
  return wrong.empty() ? check_restore(acknowledged) : wrong;
}

// Every name is one that FORMAT.md knows, or one that the next start removes.
std::string Scene::check_names(bool leftovers) const {
  constexpr std::array kKnown = {".",          "..",     ".lock",        ".in-use",
                                 "owner.json", "latest", "events.jsonl", "named"};
  const auto names = list_names(checkpoints());
  if (!names) return names.error().text;
  for (const std::string& name : *names) {
    if (std::find(kKnown.begin(), kKnown.end(), name) != kKnown.end()) continue;
    if (parse_step_name(name) || (leftovers && name.starts_with(".tmp-"))) continue;
    return name + " was left in the directory";
  }
  return "";
}

// It names a step that is whole.
std::string Scene::check_latest() const {
  std::error_code code;
  const std::string target = fs::read_symlink(checkpoints() + "/latest", code).string();
  if (code) return "latest is missing: " + code.message();
  const auto step = parse_step_name(target);
  if (!step) return "latest leads to " + target;
  const auto manifest = verify_step(checkpoints(), *step);
  return manifest ? "" : "latest: " + manifest.error().text;
}

std::string Scene::check_directory(std::uint64_t acknowledged) const {
  if (auto wrong = check_names(true); !wrong.empty()) return wrong;
  const auto steps = list_steps(checkpoints());
  if (!steps) return steps.error().text;
  if (steps->empty()) return "no step is left";
  if (steps->back() < acknowledged) {
    return fmt::format("step {} was acknowledged, {} is the newest", acknowledged, steps->back());
  }
  for (std::uint64_t step : *steps) {
    const auto manifest = verify_step(checkpoints(), step);
    if (!manifest) return manifest.error().text;
  }
  return check_latest();
}

std::string Scene::check_restore(std::uint64_t acknowledged) {
  board_->text[0] = 0;
  const pid_t pid = fork();
  if (pid == 0) _exit(restore_and_save(*board_, checkpoints(), acknowledged));
  const int status = exit_status(pid);
  if (status != 0) {
    return fmt::format("a fresh process exits with {}, acknowledged was step {}: {}", status,
                       acknowledged, board_->text);
  }
  if (!agent_is_gone(checkpoints())) return "the fresh process's agent stays";
  return check_names(false);
}

}  // namespace bellows::fault_test
