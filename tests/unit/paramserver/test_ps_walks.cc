// SPDX-License-Identifier: Apache-2.0
// Walks of the protocol's model, step by step with the real code: paramserver/model/README.md says
// what each step is. A step that the code can't take, or whose outcome is another, is a difference
// between code and model.
#include <criterion/criterion.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "tests/unit/paramserver/ps_world.h"

using namespace bellows;
using namespace bellows::ps_test;

namespace {

constexpr std::uint64_t kElements = 64;

/// One line of a walk.
struct Step {
  std::string text;
  std::string process, action, outcome;
  std::uint32_t number = 0;
  std::uint32_t first = 0, second = 0;

  static Step parse(const std::string& line) {
    Step step;
    step.text = line;
    std::istringstream words(line);
    words >> step.process;
    if (step.process != "server") words >> step.number;
    words >> step.action >> step.first >> step.second;
    const std::size_t last = line.rfind(' ');
    step.outcome = line.substr(last + 1);
    return step;
  }
};

class Walk {
 public:
  explicit Walk(const std::string& path) : path_(path), file_(path) {
    std::string line;
    cr_assert(std::getline(file_, line), "%s", path.c_str());
    std::istringstream words(line.substr(line.find("learners")));
    std::string word;
    words >> word >> learners_ >> word >> word >> shards_;
    cr_assert(learners_ >= 1 && shards_ >= 1, "%s", line.c_str());
    world_.emplace(learners_, std::vector<std::uint64_t>(shards_, kElements));
    shard_.resize(shards_);
    learner_.resize(learners_);
    for (std::uint32_t l = 0; l < learners_; ++l) join(l);
    restart();
  }

  void run() {
    std::string line;
    unsigned number = 1;
    while (std::getline(file_, line)) {
      ++number;
      if (line.empty() || line[0] == '#') continue;
      const Step step = Step::parse(line);
      cr_assert(take(step), "%s:%u: the code does not do this: %s", path_.c_str(), number,
                line.c_str());
    }
    cr_assert_gt(number, 1);
  }

 private:
  struct Shard {
    std::optional<ShardSteps> steps;
    std::optional<std::uint32_t> whose;
    std::uint32_t buffer = 0;
    /// What the weights of each version are, by what was applied until then.
    std::map<std::uint64_t, std::vector<std::uint32_t>> versions;
  };
  struct At {
    Current loaded;
    std::uint32_t next = 1;
    std::uint32_t incarnation = 0;
    LearnerSteps steps;
    SlotView slot;
  };

  void join(std::uint32_t l) {
    At& at = learner_[l];
    if (at.incarnation > 0) world_->leave(l);
    at = {};
    at.incarnation = ++incarnations_[l];
    world_->join(l, at.incarnation, 0);
    at.slot = world_->writable(l);
    at.steps = LearnerSteps(world_->control(), at.slot, member(l).who);
  }

  void restart() {
    world_->restart();
    for (std::uint32_t s = 0; s < shards_; ++s) {
      shard_[s].steps.emplace(world_->steps(s));
      shard_[s].whose.reset();
    }
    // The memory is mapped anew.
    for (std::uint32_t l = 0; l < learners_; ++l)
      learner_[l].steps = LearnerSteps(world_->control(), learner_[l].slot, member(l).who);
  }

  Member& member(std::uint32_t l) { return world_->find(l).member; }

  bool take(const Step& step) {
    if (step.process == "learner") return learner(learner_.at(step.number), step);
    if (step.process == "shard") return shard(shard_.at(step.number), step);
    if (step.action == "die")
      for (Shard& shard : shard_) shard.steps.reset();
    else
      restart();
    return true;
  }

  bool learner(At& at, const Step& step) {
    const std::uint32_t shard = step.first;
    if (step.action == "load" || step.action == "pull") {
      at.loaded = at.steps.load(shard);
      return at.loaded.buffer == step.second;
    }
    if (step.action == "wait") {
      const auto seen = at.steps.see(shard, at.loaded, at.next - 2);
      return seen ==
             (step.outcome == "done" ? LearnerSteps::Seen::applied : LearnerSteps::Seen::again);
    }
    if (step.action == "write") {
      if (step.first != at.next) return false;
      auto* data = reinterpret_cast<std::uint32_t*>(at.slot.payload(at.next, 0));
      for (std::uint64_t i = 0; i < shards_ * kElements; ++i)
        data[i] = mark(step.number * 1000 + at.incarnation, at.next, i);
      return true;
    }
    if (step.action == "publish") {
      at.steps.publish(step.first);
      return step.first == at.next++;
    }
    if (step.action == "pin") {
      at.steps.pin(shard, at.loaded);
      return at.loaded.buffer == step.second;
    }
    if (step.action == "check") {
      const bool held = at.steps.is_current(shard, at.loaded);
      if (held != (step.outcome == "held")) return false;
      return !held || is_whole(shard, at.loaded);
    }
    if (step.action == "die") {
      world_->end(step.number);
      return true;
    }
    join(step.number);
    return step.action == "join";
  }

  /// Whether the buffer has what was applied until its version, and nothing else.
  bool is_whole(std::uint32_t s, Current current) {
    const float* data = world_->weights().buffer(s, current.buffer);
    std::vector<std::uint32_t>& expected = shard_[s].versions[current.version];
    expected.resize(kElements);
    return std::memcmp(data, expected.data(), kElements * sizeof *data) == 0;
  }

  bool shard(Shard& shard, const Step& step) {
    if (!shard.steps) return false;
    ShardSteps& steps = *shard.steps;
    if (step.action == "look") {
      shard.whose = step.first;
      steps.begin_choice();
      return steps.look(member(step.first)) == ShardSteps::Found::gradient &&
             steps.next(member(step.first)) == step.second;
    }
    if (step.action == "read-pin") {
      steps.read_pin(member(step.first));
      return true;
    }
    if (!shard.whose) return false;
    const Member* const from[] = {&member(*shard.whose)};
    if (step.action == "choose") {
      shard.buffer = steps.choose();
      return shard.buffer == step.first;
    }
    if (step.action == "apply") {
      steps.apply(shard.buffer, from);
      return step.first == *shard.whose && step.second == steps.next(*from[0]);
    }
    if (step.action == "record") {
      steps.record(shard.buffer, from);
      return step.first == shard.buffer;
    }
    flip(shard, step.number);
    return step.action == "flip" && step.first == shard.buffer;
  }

  void flip(Shard& shard, std::uint32_t s) {
    const Identity& who = member(*shard.whose).who;
    const std::uint32_t sequence = shard.steps->next(member(*shard.whose));
    const std::uint64_t version = shard.steps->current().version;
    std::vector<std::uint32_t> sums = shard.versions[version];
    sums.resize(kElements);
    for (std::uint64_t i = 0; i < kElements; ++i)
      sums[i] += mark(who.learner * 1000 + who.incarnation, sequence, s * kElements + i);
    shard.versions[version + 1] = std::move(sums);
    shard.steps->flip(shard.buffer);
  }

  std::string path_;
  std::ifstream file_;
  std::uint32_t learners_ = 0, shards_ = 0;
  std::optional<World> world_;
  std::vector<Shard> shard_;
  std::vector<At> learner_;
  std::map<std::uint32_t, std::uint32_t> incarnations_;
};

}  // namespace

Test(ps_walks, the_code_does_what_the_model_does, .timeout = 60) {
  const char* folder = std::getenv("PS_WALKS");
  const std::string from = folder ? folder : WALKS;
  unsigned walks = 0;
  for (const auto& entry : std::filesystem::directory_iterator(from)) {
    Walk(entry.path().string()).run();
    ++walks;
  }
  cr_assert_gt(walks, 0);
}
