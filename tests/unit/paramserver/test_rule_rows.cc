// SPDX-License-Identifier: Apache-2.0
// Rules for some rows of a matrix, and learning rates that change.
#include <criterion/criterion.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "paramserver/rule/rows.h"
#include "paramserver/rule/schedule.h"
#include "tests/unit/checkpoint/replaced_new.h"

using namespace bellows;
using namespace bellows::ps;

static std::size_t most = SIZE_MAX;

void* allocate(std::size_t bytes) { return bytes <= most ? std::malloc(bytes) : nullptr; }

namespace {

constexpr std::size_t kRows = 9, kWidth = 21;

/// A matrix with its two states, element by element other numbers.
struct Matrix {
  Matrix() {
    for (auto* array : {&weights, &state[0], &state[1]})
      for (std::size_t i = 0; i < kRows * kWidth; ++i)
        array->push_back(static_cast<float>(1 + (i * 7 + weights.size()) % 13));
  }
  Arrays to(Matrix& made) const {
    return {.weights = weights.data(),
            .state = {state[0].data(), state[1].data()},
            .new_weights = made.weights.data(),
            .new_state = {made.state[0].data(), made.state[1].data()}};
  }
  bool operator==(const Matrix&) const = default;
  std::vector<float> weights, state[2];
};

std::string refusal(const std::vector<std::uint64_t>& claimed) {
  const auto list = RowList::of(claimed, kRows);
  return list ? "" : list.error().text;
}

RowList list_of(const std::vector<std::uint64_t>& rows) {
  auto list = RowList::of(rows, kRows);
  cr_assert(list.ok());
  return *list;
}

bool holds(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

Test(rule_rows, change_and_no_others) {
  const std::vector<RowList> lists(2, list_of({0, 3, 4, 8}));
  for (const auto type : {GradientType::f32, GradientType::bf16}) {
    // Of the listed rows one after another, two of them to be summed; bf16's 1.5 and 0.5.
    const std::vector<float> wide(4 * kWidth, 1.5), wide_too(4 * kWidth, 0.5);
    const std::vector<std::uint16_t> narrow(4 * kWidth, 0x3fc0), narrow_too(4 * kWidth, 0x3f00);
    const bool f32 = type == GradientType::f32;
    const void* gradients[] = {f32 ? static_cast<const void*>(wide.data()) : narrow.data(),
                               f32 ? static_cast<const void*>(wide_too.data()) : narrow_too.data()};
    const Factors factors =
        factors_of(Rule::adam, {.rate = 0.1, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-3});
    Matrix old, all, some;
    Arrays arrays = old.to(all);
    arrays.count = 2;
    const std::vector<float> whole(kRows * kWidth, 1.5), whole_too(kRows * kWidth, 0.5);
    const void* whole_gradients[] = {whole.data(), whole_too.data()};
    arrays.gradients = whole_gradients;
    choose(Rule::adam, GradientType::f32)(factors, arrays, kRows * kWidth);
    arrays = old.to(some);
    arrays.count = 2;
    arrays.gradients = gradients;
    apply_rows(choose(Rule::adam, type), factors, type, arrays, lists, kWidth);
    for (std::size_t i = 0; i < kRows * kWidth; ++i) {
      const std::size_t row = i / kWidth;
      const bool listed = row == 0 || row == 3 || row == 4 || row == 8;
      const Matrix& wanted = listed ? all : old;
      cr_assert(some.weights[i] == wanted.weights[i], "row %zu", row);
      cr_assert(some.state[0][i] == wanted.state[0][i] && some.state[1][i] == wanted.state[1][i]);
    }
    cr_assert(some != old && some != all);
  }
}

Test(rule_rows, take_each_row_of_their_own_gradient) {
  const RowList list = list_of({2, 7});
  std::vector<float> gradient(2 * kWidth, 1);
  for (std::size_t i = kWidth; i < 2 * kWidth; ++i) gradient[i] = 2;
  Matrix old, made;
  const void* gradients[] = {gradient.data()};
  Arrays arrays = old.to(made);
  arrays.gradients = gradients;
  apply_rows(choose(Rule::sgd, GradientType::f32), factors_of(Rule::sgd, {.rate = 1}),
             GradientType::f32, arrays, {&list, 1}, kWidth);
  cr_expect(made.weights[2 * kWidth] == old.weights[2 * kWidth] - 1);
  cr_expect(made.weights[8 * kWidth - 1] == old.weights[8 * kWidth - 1] - 2);
  cr_expect(made.weights[8 * kWidth] == old.weights[8 * kWidth]);
}

Test(rule_rows, that_several_have_are_summed_in_their_order) {
  const std::vector<RowList> lists{list_of({1, 5}), list_of({5}), list_of({0, 5, 8})};
  // Of which the sum depends on the order: 2^24 + 1 is no float, and 2^24 + 2 is one.
  std::vector<float> first(2 * kWidth, 1), third(3 * kWidth, 0x1p24F);
  const void* gradients[] = {first.data(), first.data(), third.data()};
  Matrix old, made;
  std::fill(old.weights.begin(), old.weights.end(), -1.0F);
  made = old;
  Arrays arrays = old.to(made);
  arrays.gradients = gradients;
  arrays.count = 3;
  const RowList changed =
      apply_rows(choose(Rule::sgd, GradientType::f32), factors_of(Rule::sgd, {.rate = -1}),
                 GradientType::f32, arrays, lists, kWidth);
  const std::vector<std::uint64_t> rows(changed.rows().begin(), changed.rows().end());
  cr_expect(rows == std::vector<std::uint64_t>({0, 1, 5, 8}));
  const float wanted[kRows] = {0x1p24F - 1, 0, -1, -1, -1, 0x1p24F, -1, -1, 0x1p24F - 1};
  for (std::size_t i = 0; i < kRows * kWidth; ++i)
    cr_expect(made.weights[i] == wanted[i / kWidth], "element %zu: %a", i, made.weights[i]);
}

Test(rule_rows, have_the_epsilon_of_sparse_adam) {
  const Terms terms{.rate = 0.1, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 0.5, .step = 3};
  const Factors dense = factors_of(Rule::adam, terms), rows = row_factors_of(Rule::adam, terms);
  // root(t) / correction + epsilon / correction, as torch has root(t) + epsilon over it.
  cr_expect_float_eq(rows.epsilon * rows.root, 0.5F, 1e-7F);
  cr_expect(rows.rate == dense.rate && rows.root == dense.root);
  cr_expect(row_factors_of(Rule::adagrad, terms).epsilon == 0.5F);
}

Test(rule_rows, are_refused_outside_the_matrix_or_twice) {
  cr_expect(refusal({}).empty() && refusal({8}).empty());
  cr_expect(
      holds(refusal({1, 9}), "entry 1 of the gradient's rows is 9, but the matrix has 9 rows"));
  cr_expect(holds(refusal({~std::uint64_t{0}}), "entry 0"));
  cr_expect(holds(refusal({1, 4, 4}), "entry 2 of the gradient's rows is 4, after 4"));
  cr_expect(holds(refusal({5, 4}), "after 5"));
}

Test(rule_rows, are_copied_before_they_are_checked) {
  std::vector<std::uint64_t> claimed{1, 2};
  const auto list = RowList::of(claimed, kRows);
  claimed[1] = 1000;
  cr_expect(list->rows()[1] == 2);
}

Test(rule_rows, of_which_none_makes_sense_take_no_memory) {
  const std::vector<std::uint64_t> claimed(1 << 20, kRows);
  most = std::size_t{1} << 20;
  const auto list = RowList::of(claimed, kRows);
  most = SIZE_MAX;
  cr_assert_not(list.ok());
  cr_expect(holds(list.error().text, "entry 0"), "%s", list.error().text.c_str());
}

Test(rule_rows, that_do_not_fit_are_an_error) {
  std::vector<std::uint64_t> claimed(1 << 20);
  for (std::size_t i = 0; i < claimed.size(); ++i) claimed[i] = i;
  most = std::size_t{1} << 20;
  const auto list = RowList::of(claimed, claimed.size());
  most = SIZE_MAX;
  cr_assert_not(list.ok());
  cr_expect(holds(list.error().text, "no memory to copy 1048576 rows"), "%s",
            list.error().text.c_str());
}

Test(rule_schedule, rises_in_a_line) {
  const RateSchedule schedule{.rate = 2, .warm_up = 4};
  cr_expect(rate_of(schedule, 1) == 0.5 && rate_of(schedule, 3) == 1.5);
  cr_expect(rate_of(schedule, 4) == 2 && rate_of(schedule, 5) == 2 && rate_of(schedule, 1000) == 2);
  cr_expect(rate_of({.rate = 2}, 1) == 2 && rate_of({.rate = 2}, 0) == 2);
}

Test(rule_schedule, falls_in_steps) {
  const RateSchedule schedule{
      .shape = RateShape::step, .rate = 8, .warm_up = 2, .period = 3, .factor = 0.5};
  const double wanted[] = {4, 8, 8, 8, 8, 4, 4, 4, 2};
  for (std::uint64_t update = 1; update <= 9; ++update)
    cr_expect(rate_of(schedule, update) == wanted[update - 1], "update %d",
              static_cast<int>(update));
  cr_expect(std::isfinite(rate_of({.shape = RateShape::step, .rate = 8, .period = 0}, 5)));
}

Test(rule_schedule, falls_as_a_cosine_and_stays) {
  const RateSchedule schedule{.shape = RateShape::cosine, .rate = 3, .period = 10, .lowest = 1};
  cr_expect(rate_of(schedule, 1) == 3);
  cr_expect(std::abs(rate_of(schedule, 6) - 2) < 1e-12);
  cr_expect(rate_of(schedule, 11) == 1 && rate_of(schedule, 500) == 1);
}
