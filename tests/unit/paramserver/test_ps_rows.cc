// SPDX-License-Identifier: Apache-2.0
// Gradients of some rows of a matrix: whichever buffer a version is written to and whoever is
// killed, learners read what the rule makes of all rows that were pushed.
#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>
#include <thread>

#include "tests/unit/paramserver/ps_processes.h"

using namespace bellows;
using namespace bellows::ps_test;

namespace {

using Random = std::mt19937_64;
using Rows = std::vector<std::uint64_t>;

constexpr std::uint64_t kRows = 4000, kWidth = 24, kCount = kRows * kWidth;
constexpr std::uint64_t kWidths[] = {0, kWidth, 0};
const std::vector<std::uint64_t> kSizes = {100, kCount, 28};

bellows_ps_config config_of(int rule) {
  bellows_ps_config config = BELLOWS_PS_CONFIG_INIT;
  config.rule = rule;
  config.rate = rule == BELLOWS_PS_SGD ? 1 : 0.1;
  config.epsilon = 0.05;
  if (rule == BELLOWS_PS_ADAM || rule == BELLOWS_PS_MOMENTUM) config.beta1 = 0.9;
  if (rule == BELLOWS_PS_ADAM || rule == BELLOWS_PS_RMSPROP) config.beta2 = 0.99;
  config.width = kWidths;
  config.wait_ms = kWaitMs;
  return config;
}

/// What torch makes of sparse gradients, in double.
class Reference {
 public:
  explicit Reference(const bellows_ps_config& config) : config_(config) {}

  /// Without a list, of a whole tensor.
  void update(const Rows& rows, const std::vector<float>& gradient) {
    ++step_;
    for (std::size_t i = 0; i < gradient.size(); ++i)
      element(rows[i / kWidth] * kWidth + i % kWidth, gradient[i]);
  }
  const std::vector<double>& weights() const { return weights_; }

 private:
  void element(std::uint64_t at, double g) {
    double &w = weights_[at], &s = first_[at], &t = second_[at];
    const double rate = config_.rate, epsilon = config_.epsilon;
    switch (config_.rule) {
      case BELLOWS_PS_SGD:
        w -= rate * g;
        break;
      case BELLOWS_PS_MOMENTUM:
        s = config_.beta1 * s + g;
        w -= rate * s;
        break;
      case BELLOWS_PS_ADAGRAD:
        s += g * g;
        w -= rate * g / (std::sqrt(s) + epsilon);
        break;
      case BELLOWS_PS_ADAM:
        s = config_.beta1 * s + (1 - config_.beta1) * g;
        t = config_.beta2 * t + (1 - config_.beta2) * g * g;
        w -= rate * std::sqrt(1 - std::pow(config_.beta2, step_)) /
             (1 - std::pow(config_.beta1, step_)) * s / (std::sqrt(t) + epsilon);
        break;
      default:
        t = config_.beta2 * t + (1 - config_.beta2) * g * g;
        w -= rate * g / (std::sqrt(t) + epsilon);
    }
  }

  bellows_ps_config config_;
  int step_ = 0;
  std::vector<double> weights_ = std::vector<double>(kCount), first_ = weights_, second_ = weights_;
};

/// So many rows of all, each as likely.
Rows some_rows(Random& random, std::uint64_t count) {
  Rows rows;
  for (std::uint64_t row = 0; row < kRows && count > 0; ++row)
    if (random() % (kRows - row) < count) {
      rows.push_back(row);
      --count;
    }
  return rows;
}

std::vector<float> whole_numbers(Random& random, std::uint64_t count) {
  std::vector<float> numbers(count);
  for (float& number : numbers) number = static_cast<float>(random() % 15) - 7;
  return numbers;
}

/// Its other tensors get ones.
int push_rows(OpenLearner& learner, const Rows& rows, const std::vector<float>& gradient) {
  if (const int rc = bellows_ps_begin(learner.ps); rc != BELLOWS_PS_OK) return rc;
  if (const int rc = bellows_ps_gradient_rows(learner.ps, 1, rows.data(), rows.size()); rc < 0)
    return rc;
  std::copy(gradient.begin(), gradient.end(),
            static_cast<float*>(bellows_ps_gradient(learner.ps, 1)));
  for (const std::size_t t : {0, 2})
    std::fill_n(static_cast<float*>(bellows_ps_gradient(learner.ps, t)), kSizes[t], 1.0F);
  return bellows_ps_push(learner.ps, 1);
}

void push_some(OpenLearner& learner, Reference& reference, Random& random, std::uint64_t count) {
  const Rows rows = some_rows(random, count);
  const auto gradient = whole_numbers(random, rows.size() * kWidth);
  cr_assert_eq(push_rows(learner, rows, gradient), BELLOWS_PS_OK, "%s", learner.error().c_str());
  reference.update(rows, gradient);
}

void expect_weights(OpenLearner& learner, const Reference& reference, const char* when) {
  cr_assert_eq(bellows_ps_drain(learner.ps), BELLOWS_PS_OK, "%s", learner.error().c_str());
  cr_assert_eq(bellows_ps_pull(learner.ps), BELLOWS_PS_OK, "%s", learner.error().c_str());
  const float* const weights = bellows_ps_weights(learner.ps, 1);
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const double wanted = reference.weights()[i];
    cr_assert(std::abs(weights[i] - wanted) <= 1e-4 * std::max(1.0, std::abs(wanted)),
              "%s: element %d is %g and not %g", when, static_cast<int>(i), weights[i], wanted);
  }
}

/// The sentence with which it is refused.
std::string refusal_of(bellows_ps_config config, const std::uint64_t* widths) {
  config.width = widths;
  const OpenLearner learner(kSizes, config);
  cr_expect_eq(learner.code, BELLOWS_PS_ERR_INVALID);
  return learner.error();
}

bool says(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

Test(ps_rows, are_updated_as_torch_does, .timeout = 120) {
  for (const int rule : {BELLOWS_PS_SGD, BELLOWS_PS_MOMENTUM, BELLOWS_PS_ADAGRAD, BELLOWS_PS_ADAM,
                         BELLOWS_PS_RMSPROP}) {
    const Server server({"--threads=2"});
    const bellows_ps_config config = config_of(rule);
    OpenLearner learner(kSizes, config);
    cr_assert_eq(learner.code, BELLOWS_PS_OK, "%s", learner.error().c_str());
    Reference reference(config);
    Random random(7);
    for (const std::uint64_t count : {5, 0, 3, 1000, 4000, 1, 8, 64, 64, 64, 2000, 0, 2}) {
      push_some(learner, reference, random, count);
      expect_weights(learner, reference, "after a push");
    }
    if (rule == BELLOWS_PS_SGD)
      for (const std::size_t t : {0, 2})
        cr_expect_eq(bellows_ps_weights(learner.ps, t)[kSizes[t] - 1], -13);
  }
}

// A buffer that somebody has read for long is far behind the others when it is written to.
Test(ps_rows, reach_buffers_that_were_read_meanwhile, .timeout = 120) {
  const Server server({"--threads=2"});
  const bellows_ps_config config = config_of(BELLOWS_PS_ADAGRAD);
  OpenLearner reader(kSizes, config), learner(kSizes, config);
  cr_assert(reader.code == BELLOWS_PS_OK && learner.code == BELLOWS_PS_OK);
  Reference reference(config);
  Random random(8);
  // Of single rows more than the server remembers, then more rows than there are.
  const std::pair<int, std::uint64_t> between[] = {{1, 3}, {5, 3}, {40, 3}, {1500, 1}, {12, 700}};
  for (const auto& [updates, rows] : between) {
    cr_assert_eq(bellows_ps_pull(reader.ps), BELLOWS_PS_OK);
    const std::vector<float> before(bellows_ps_weights(reader.ps, 1),
                                    bellows_ps_weights(reader.ps, 1) + kCount);
    for (int i = 0; i < updates; ++i) push_some(learner, reference, random, rows);
    expect_weights(learner, reference, "while another reads");
    cr_expect(std::equal(before.begin(), before.end(), bellows_ps_weights(reader.ps, 1)),
              "what a learner reads has changed");
    // Its buffer is free from here on, and the next to be written to.
    expect_weights(reader, reference, "after a long look");
    for (int i = 0; i < 4; ++i) {
      push_some(learner, reference, random, 2);
      expect_weights(learner, reference, "in the buffer that was read");
    }
  }
}

Test(ps_rows, reach_buffers_whose_server_was_killed, .timeout = 120) {
  const Server server({"--threads=2"});
  const bellows_ps_config config = config_of(BELLOWS_PS_ADAM);
  OpenLearner learner(kSizes, config);
  cr_assert_eq(learner.code, BELLOWS_PS_OK, "%s", learner.error().c_str());
  Reference reference(config);
  Random random(9);
  for (int kills = 0; kills < 4; ++kills) {
    for (int i = 0; i < 7; ++i) push_some(learner, reference, random, 40);
    const pid_t worker = server.worker();
    kill(worker, SIGKILL);
    // It may have been about to apply it.
    push_some(learner, reference, random, 2);
    cr_assert(eventually([&] { return server.worker() != 0 && server.worker() != worker; }));
    for (int i = 0; i < 5; ++i) {
      expect_weights(learner, reference, "after a kill");
      push_some(learner, reference, random, 1);
    }
  }
  expect_weights(learner, reference, "at the end");
  // It knows the widths, too.
  const std::uint64_t other[] = {0, kWidth / 2, 0};
  const std::string differs = refusal_of(config, other);
  cr_expect(says(differs, "tensor 1 of a learner has a width of "), "%s", differs.c_str());
}

Test(ps_rows, of_learners_whose_server_is_killed_count_once, .timeout = 120) {
  row_width = 10;
  const Server server({"--threads=2", "--first-sequence=4294967000"});
  Counters counters;
  OpenLearner reader;
  const std::uint32_t count = 3000;
  const pid_t children[] = {start_learner(0, count, counters), start_learner(1, count, counters)};
  pid_t last = 0;
  for (int kills = 0; kills < 6; ++kills) {
    const std::uint32_t before = counters[0] + counters[1];
    cr_assert(eventually([&] {
      return counters[0] + counters[1] > before + 50 && server.worker() != 0 &&
             server.worker() != last;
    }));
    last = server.worker();
    kill(last, SIGKILL);
  }
  for (const pid_t child : children) cr_expect_eq(exit_code(child), 0);
  cr_expect(is_sum(reader.pull(), {count, count}));
}

// Bit by bit what one process has that adds them in the order of learners.
Test(ps_rows, of_learners_in_step_are_averaged, .timeout = 60) {
  const Server server({"--threads=2", "--mode=sync"});
  bellows_ps_config config = config_of(BELLOWS_PS_SGD);
  config.rate = 0.3;
  OpenLearner learners[] = {{kSizes, config}, {kSizes, config}, {kSizes, config}};
  Random random(10);
  std::vector<float> wanted(kCount);
  for (int step = 0; step < 30; ++step) {
    std::vector<float> sum(kCount);
    for (OpenLearner& learner : learners) {
      cr_assert_eq(learner.code, BELLOWS_PS_OK, "%s", learner.error().c_str());
      const Rows rows = some_rows(random, random() % 3000);
      std::vector<float> gradient(rows.size() * kWidth);
      for (float& number : gradient)
        number =
            std::ldexp(static_cast<float>(random() % 1'000'003), -static_cast<int>(random() % 30));
      cr_assert_eq(push_rows(learner, rows, gradient), BELLOWS_PS_OK);
      for (std::size_t i = 0; i < gradient.size(); ++i)
        sum[rows[i / kWidth] * kWidth + i % kWidth] += gradient[i];
    }
    for (std::uint64_t i = 0; i < kCount; ++i)
      wanted[i] += sum[i] * static_cast<float>(1.0 / 3) * static_cast<float>(-0.3);
  }
  for (OpenLearner& learner : learners) {
    cr_assert_eq(bellows_ps_drain(learner.ps), BELLOWS_PS_OK);
    cr_assert_eq(bellows_ps_pull(learner.ps), BELLOWS_PS_OK);
    cr_expect_eq(std::memcmp(bellows_ps_weights(learner.ps, 1), wanted.data(), kCount * 4), 0);
  }
}

Test(ps_rows, of_half_the_bits_are_clipped_by_their_norm, .timeout = 60) {
  const Server server;
  bellows_ps_config config = config_of(BELLOWS_PS_SGD);
  config.gradient_type = BELLOWS_PS_BF16;
  config.clip_norm = 2;
  OpenLearner learner(kSizes, config);
  cr_assert_eq(learner.code, BELLOWS_PS_OK, "%s", learner.error().c_str());
  const auto push = [&](const Rows& rows) {
    cr_assert_eq(bellows_ps_begin(learner.ps), BELLOWS_PS_OK);
    for (const std::size_t t : {0, 2})
      std::memset(bellows_ps_gradient(learner.ps, t), 0, 2 * kSizes[t]);
    // 1, also where it has no rows.
    std::fill_n(static_cast<std::uint16_t*>(bellows_ps_gradient(learner.ps, 1)), kCount, 0x3f80);
    cr_assert_eq(bellows_ps_gradient_rows(learner.ps, 1, rows.data(), rows.size()), BELLOWS_PS_OK);
    cr_assert_eq(bellows_ps_push(learner.ps, 1), BELLOWS_PS_OK);
    cr_assert_eq(bellows_ps_drain(learner.ps), BELLOWS_PS_OK);
    cr_assert_eq(bellows_ps_pull(learner.ps), BELLOWS_PS_OK);
  };
  // Of 144 ones the norm is 12.
  push({3, 4, 100, 101, 102, 3999});
  const float* weights = bellows_ps_weights(learner.ps, 1);
  cr_expect_float_eq(weights[3 * kWidth], -1.0 / 6, 1e-3);
  cr_expect_float_eq(weights[kCount - 1], -1.0 / 6, 1e-3);
  cr_expect_eq(weights[5 * kWidth], 0);
  push({});
  cr_expect_float_eq(bellows_ps_weights(learner.ps, 1)[3 * kWidth], -1.0 / 6, 1e-3);
}

Test(ps_rows, that_make_no_sense_are_refused, .timeout = 60) {
  const Server server;
  bellows_ps_config config = config_of(BELLOWS_PS_ADAM);
  const std::uint64_t uneven[] = {0, kWidth, 3}, other[] = {0, kWidth, 7};
  const std::string no_rows = refusal_of(config, uneven);
  cr_expect(says(no_rows, "tensor 2 has 28 elements, which are no rows of 3"), "%s",
            no_rows.c_str());
  config.weight_decay = 0.1;
  const std::string decays = refusal_of(config, kWidths);
  cr_expect(says(decays, "tensor 1") && says(decays, "a weight decay of 0.1"), "%s",
            decays.c_str());
  config.weight_decay = 0;
  OpenLearner learner(kSizes, config);
  cr_assert_eq(learner.code, BELLOWS_PS_OK, "%s", learner.error().c_str());
  const std::string differs = refusal_of(config, other);
  cr_expect(
      says(differs, "tensor 2 of a learner has a width of 7, and that of the first one of 0: "),
      "%s", differs.c_str());

  const auto refuses = [&](std::size_t tensor, const Rows& rows, const char* part) {
    cr_expect_eq(bellows_ps_gradient_rows(learner.ps, tensor, rows.data(), rows.size()),
                 BELLOWS_PS_ERR_INVALID);
    cr_expect(says(learner.error(), part), "%s", learner.error().c_str());
  };
  refuses(1, {1}, "bellows_ps_begin first");
  cr_assert_eq(bellows_ps_begin(learner.ps), BELLOWS_PS_OK);
  refuses(0, {1}, "there is no tensor 0 with a width");
  refuses(3, {1}, "there is no tensor 3");
  refuses(1, {1, kRows},
          "entry 1 of the rows of tensor 1 is 4000: they ascend, each once, below 4000");
  refuses(1, {5, 5}, "entry 1 of the rows");
  refuses(1, {~std::uint64_t{0}}, "entry 0 of the rows");
  cr_expect_eq(bellows_ps_gradient_rows(learner.ps, 1, nullptr, 0), BELLOWS_PS_OK);
}

// Rows that were named for a gradient are not those of the one two later, in the same place.
Test(ps_rows, are_named_for_one_gradient_only, .timeout = 60) {
  const Server server;
  OpenLearner learner(kSizes, config_of(BELLOWS_PS_SGD));
  cr_assert_eq(learner.code, BELLOWS_PS_OK, "%s", learner.error().c_str());
  for (int i = 0; i < 6; ++i) {
    cr_assert_eq(bellows_ps_begin(learner.ps), BELLOWS_PS_OK);
    for (const std::size_t t : {0, 1, 2})
      std::fill_n(static_cast<float*>(bellows_ps_gradient(learner.ps, t)), kSizes[t], 1.0F);
    const std::uint64_t row = 17;
    if (i < 2) cr_assert_eq(bellows_ps_gradient_rows(learner.ps, 1, &row, 1), BELLOWS_PS_OK);
    cr_assert_eq(bellows_ps_push(learner.ps, 1), BELLOWS_PS_OK);
  }
  cr_assert_eq(bellows_ps_drain(learner.ps), BELLOWS_PS_OK);
  cr_assert_eq(bellows_ps_pull(learner.ps), BELLOWS_PS_OK);
  cr_expect_eq(bellows_ps_weights(learner.ps, 1)[17 * kWidth], -2);
  cr_expect_eq(bellows_ps_weights(learner.ps, 0)[0], -6);
}

Test(ps_rows, are_for_programs_that_know_of_them, .timeout = 60) {
  const Server server;
  bellows_ps_config config = config_of(BELLOWS_PS_SGD);
  // Compiled with the header before: what is behind it may be anything.
  config.size = offsetof(bellows_ps_config, width);
  config.width = reinterpret_cast<const std::uint64_t*>(1);
  OpenLearner older(kSizes, config);
  cr_assert_eq(older.code, BELLOWS_PS_OK, "%s", older.error().c_str());
  cr_assert_eq(older.push(0, 0), BELLOWS_PS_OK);
  // With a later one.
  struct {
    bellows_ps_config known;
    std::uint64_t unknown;
  } later = {config, 0};
  later.known.width = nullptr;
  later.known.size = sizeof later;
  const auto join = [&](std::string* sentence) {
    const std::vector<float> zeroes(kCount);
    const float* const initial[] = {zeroes.data(), zeroes.data(), zeroes.data()};
    bellows_ps_t* ps = nullptr;
    const int code = bellows_ps_join(&later.known, kSizes.data(), initial, 3, &ps);
    *sentence = bellows_ps_error(ps);
    bellows_ps_leave(ps);
    return code;
  };
  std::string sentence;
  cr_expect_eq(join(&sentence), BELLOWS_PS_OK, "%s", sentence.c_str());
  later.unknown = 1;
  cr_expect_eq(join(&sentence), BELLOWS_PS_ERR_INVALID);
  cr_expect(says(sentence, "the program needs a newer libbellows_ps"), "%s", sentence.c_str());
  for (const std::size_t size : {std::size_t{1} << 20, offsetof(bellows_ps_config, width) + 4}) {
    later.known.size = size;
    cr_expect_eq(join(&sentence), BELLOWS_PS_ERR_INVALID, "of %zu bytes", size);
    cr_expect(says(sentence, "begin with BELLOWS_PS_CONFIG_INIT"), "%s", sentence.c_str());
  }
}
