// SPDX-License-Identifier: Apache-2.0
/// Calls and answers of elastic objects as bytes. tests/unit/python/test_pool_cpp.py has the rest,
/// with members and callers in processes of their own.

#include <criterion/criterion.h>

#include <limits>

#include "pool/object/pack.h"

using namespace bellows::pool;

TestSuite(pool_object, .timeout = 30);

namespace {

Value nested(std::size_t depth) {
  Value value;
  for (; depth > 0; --depth) value = Value{Value::List{std::move(value)}};
  return value;
}

}  // namespace

Test(pool_object, values_come_back) {
  const Value all{Value::List{
      Value{},
      Value{true},
      to_value(-5),
      to_value(std::numeric_limits<std::int64_t>::min()),
      to_value(std::numeric_limits<std::uint64_t>::max()),
      to_value(0.5),
      to_value("text"),
      Value{Bytes{std::string("\0\xff", 2)}},
      Value{Extension{-7, "abc"}},
      Value{Value::List{}},
      Value{Value::Map{}},
      Value{Value::Map{{to_value(1), Value{Value::Map{{to_value("a"), nested(3)}}}},
                       {to_value("b"), to_value(std::vector<int>{1, 2})}}},
  }};
  const auto back = unpack(pack(all));
  cr_assert(back && *back == all);
}

Test(pool_object, numbers_that_do_not_fit_are_of_another_type) {
  std::uint8_t small = 0;
  cr_assert(from_value(to_value(255), &small) && small == 255);
  cr_assert(!from_value(to_value(256), &small));
  cr_assert(!from_value(to_value(-1), &small));
  std::int64_t large = 0;
  cr_assert(!from_value(to_value(std::numeric_limits<std::uint64_t>::max()), &large));
  double real = 0;
  cr_assert(from_value(to_value(3), &real) && real == 3);
  bool truth = false;
  cr_assert(!from_value(to_value(1), &truth));
  std::vector<int> list;
  cr_assert(!from_value(to_value(std::vector<std::string>{"a"}), &list));
}

Test(pool_object, limits_hold) {
  cr_assert(unpack(pack(nested(kDeepest))));
  cr_assert(!unpack(pack(nested(kDeepest + 1))));
  cr_assert(!unpack(std::string(1'000'000, '\x91') + '\xc0'));
  // More values than may be, in as many bytes.
  std::string many("\xdd\x00\x50\x00\x00", 5);
  many.append(0x500000, '\xc0');
  cr_assert(!unpack(many));
  // What claims to be large and isn't there.
  for (const std::string_view claim :
       {std::string_view("\xdd\xff\xff\xff\xff", 5), std::string_view("\xdf\xff\xff\xff\xff", 5),
        std::string_view("\xdb\xff\xff\xff\xff", 5),
        std::string_view("\xc9\xff\xff\xff\xff\x01", 6)})
    cr_assert(!unpack(claim));
  // A list as a key, an extension without a type, no type at all, a second value, and nothing.
  for (const std::string_view wrong : {"\x81\x90\x01", "\xc7", "\xc1", "\x01\x01", ""})
    cr_assert(!unpack(wrong));
}

Test(pool_object, requests_have_their_form) {
  const auto request = unpack_request(pack_request("look_up", {to_value("a"), to_value(1)}));
  cr_assert(request && request->method == "look_up" && request->args.size() == 2);
  cr_assert(!request->names_args);
  for (const Value& wrong :
       {Value{}, Value{Value::List{}}, Value{Value::List{to_value("m"), Value{Value::List{}}}},
        Value{Value::List{to_value(1), Value{Value::List{}}, Value{Value::Map{}}}},
        Value{Value::List{to_value("m"), Value{Value::Map{}}, Value{Value::Map{}}}}})
    cr_assert(!unpack_request(pack(wrong)));
}

Test(pool_object, answers_have_their_form) {
  const auto value = unpack_answer(pack_answer(to_value(7)));
  cr_assert(value && *value == to_value(7));
  const auto raised =
      unpack_answer(pack_answer(Failure{CallOutcome::raised, "too far", "Known", "line 1"}));
  cr_assert(!raised && raised.failure().outcome == CallOutcome::raised);
  cr_assert(raised.failure().type == "Known" && raised.failure().traceback == "line 1");
  for (const Value& wrong : {Value{}, Value{Value::List{to_value(2), to_value(1)}},
                             Value{Value::List{to_value(1), to_value("a")}}}) {
    const auto answer = unpack_answer(pack(wrong));
    cr_assert(!answer && answer.failure().outcome == CallOutcome::may_have_run);
  }
}
