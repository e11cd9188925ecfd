// SPDX-License-Identifier: Apache-2.0
// The rules against torch.optim, which torch_steps.py runs: bit by bit if torch joins no
// multiplications with additions, and otherwise step by step.
#include <criterion/criterion.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "paramserver/rule/rule.h"
#include "paramserver/rule/schedule.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace bellows::ps;

TestSuite(rule_torch, .timeout = 120);

namespace {

using Floats = std::vector<float>;

const std::map<std::string, Rule> kRules = {{"sgd", Rule::sgd},
                                            {"momentum", Rule::momentum},
                                            {"adagrad", Rule::adagrad},
                                            {"adam", Rule::adam},
                                            {"rmsprop", Rule::rmsprop}};

/// One optimizer of torch's: its line of text.
struct Said {
  std::string rule, version;
  std::size_t elements = 0;
  int steps = 0;
  unsigned states = 0;
  std::uint64_t warm_up = 0;
  Terms terms;
};

struct State {
  Floats weights, state[2];
};

bool next(std::istream& in, Said* said) {
  std::string line;
  if (!std::getline(in, line)) return false;
  std::istringstream words(line);
  Terms& t = said->terms;
  words >> said->rule >> said->version >> said->elements >> said->steps >> said->states >>
      said->warm_up >> t.rate >> t.beta1 >> t.beta2 >> t.epsilon >> t.weight_decay >> t.decoupled >>
      t.nesterov >> t.scale >> t.clip_value;
  cr_assert(!words.fail(), "cannot read \"%s\"", line.c_str());
  return true;
}

Floats floats(std::istream& in, std::size_t elements) {
  Floats read(elements);
  in.read(reinterpret_cast<char*>(read.data()), static_cast<std::streamsize>(4 * elements));
  cr_assert(in.good());
  return read;
}

State stepped(const Said& said, const State& before, const Floats& gradient, double rate, int step,
              InstructionSet set) {
  State after = before;
  Terms terms = said.terms;
  terms.rate = rate;
  terms.step = static_cast<std::uint64_t>(step);
  const Rule rule = kRules.at(said.rule);
  cr_assert(states_of(rule, terms) == said.states);
  const void* gradients[] = {gradient.data()};
  Arrays a{.weights = before.weights.data(), .gradients = gradients};
  a.new_weights = after.weights.data();
  for (unsigned i = 0; i < said.states; ++i) {
    a.state[i] = before.state[i].data();
    a.new_state[i] = after.state[i].data();
  }
  choose(rule, GradientType::f32, set)(factors_of(rule, terms), a, said.elements);
  return after;
}

/// How large the summands of an element's new value are: a sum that cancels has their error.
Floats summands(const Terms& terms, const State& before, const Floats& gradient) {
  Floats largest(gradient.size());
  for (std::size_t i = 0; i < largest.size(); ++i)
    largest[i] = static_cast<float>(std::max(std::abs(gradient[i] * terms.scale),
                                             std::abs(before.weights[i] * terms.weight_decay)));
  return largest;
}

/// Between two new values, in units of the last place of the largest that was added.
double most_ulps(const Floats& summands, const Floats& old, const Floats& ours,
                 const Floats& theirs) {
  double most = 0;
  for (std::size_t i = 0; i < old.size(); ++i) {
    const float large =
        std::max({summands[i], std::abs(old[i]), std::abs(ours[i]), std::abs(theirs[i])});
    const double ulp = std::nextafter(large, std::numeric_limits<float>::infinity()) - large;
    most = std::max(most, std::abs(static_cast<double>(ours[i]) - theirs[i]) / ulp);
  }
  return most;
}

bool same_bits(const Floats& a, const Floats& b) {
  return std::memcmp(a.data(), b.data(), 4 * a.size()) == 0;
}

State first(std::istream& in, const Said& said) {
  State state{.weights = floats(in, said.elements), .state = {}};
  for (Floats& array : state.state) array.assign(said.elements, 0);
  return state;
}

/// Weight decay may cancel a gradient, whose error then is large for its size; these rules divide
/// the gradient by its size.
bool cancels(const Said& said) {
  return said.terms.weight_decay != 0 && !said.terms.decoupled && said.rule != "sgd" &&
         said.rule != "momentum";
}

/// Follows one optimizer through its steps. `exact`: from our own arrays, to the same bits;
/// otherwise each step from its arrays.
void follow(std::istream& in, const Said& said, InstructionSet set, bool exact) {
  State state = first(in, said);
  const RateSchedule schedule{.shape = RateShape::cosine,
                              .rate = said.terms.rate,
                              .warm_up = said.warm_up,
                              .period = static_cast<std::uint64_t>(said.steps),
                              .lowest = said.terms.rate / 10};
  for (int step = 1; step <= said.steps; ++step) {
    double rate = 0;
    in.read(reinterpret_cast<char*>(&rate), sizeof rate);
    cr_assert(std::abs(rate_of(schedule, static_cast<std::uint64_t>(step)) - rate) < 1e-12 * rate,
              "the rate of step %d is %.17g", step, rate);
    const Floats gradient = floats(in, said.elements);
    const State ours = stepped(said, state, gradient, rate, step, set);
    State theirs{.weights = floats(in, said.elements), .state = {}};
    for (unsigned i = 0; i < said.states; ++i) theirs.state[i] = floats(in, said.elements);
    const Floats added = summands(said.terms, state, gradient);
    double most = most_ulps(added, state.weights, ours.weights, theirs.weights);
    bool same = same_bits(ours.weights, theirs.weights);
    for (unsigned i = 0; i < said.states; ++i) {
      most = std::max(most, most_ulps(added, state.state[i], ours.state[i], theirs.state[i]));
      same = same && same_bits(ours.state[i], theirs.state[i]);
    }
    cr_assert(same || !exact, "%s, step %d: other bits than torch's", said.rule.c_str(), step);
    cr_assert(most <= 2 || cancels(said), "%s, step %d: %g ulp from torch", said.rule.c_str(), step,
              most);
    state = exact ? ours : theirs;
  }
}

/// torch with these instructions. False: it isn't there.
bool ran(const std::string& capability, const std::string& path) {
  const char* chosen = std::getenv("PYTHON");
  const std::string python = chosen ? chosen : "/usr/bin/python3";
  const std::string command =
      "ATEN_CPU_CAPABILITY=" + capability + " timeout 100 '" + python + "' " STEPS " > " + path;
  const int status = std::system(command.c_str());
  if (WIFEXITED(status) && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127)) return false;
  cr_assert(status == 0, "\"%s\" ended with %d", command.c_str(), status);
  return true;
}

void compare(const std::string& capability) {
  ScratchDir dir;
  const std::string path = dir.path() + "/steps";
  if (!ran(capability, path)) cr_skip_test("there is no torch");
  int optimizers = 0;
  for (const auto set : {InstructionSet::scalar, fastest_set()}) {
    std::ifstream in(path, std::ios::binary);
    for (Said said; next(in, &said); ++optimizers) {
      // From 2.0 on Adam's first moment is interpolated, which rounds otherwise.
      const bool exact = capability == "default" && (said.rule != "adam" || said.version < "2");
      follow(in, said, set, exact);
    }
  }
  cr_assert(optimizers == 2 * 11, "%d optimizers", optimizers);
}

}  // namespace

Test(rule_torch, gives_the_bits_of_torch_without_joined_operations) { compare("default"); }

Test(rule_torch, is_at_most_two_ulp_from_torch_at_each_step) { compare("avx2"); }
