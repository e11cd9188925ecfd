// SPDX-License-Identifier: Apache-2.0
// libbellows as a program finds it: what it needs and exports, and what it says to a wrong call.
#include <criterion/criterion.h>
#include <sched.h>

#include <cmath>
#include <cstddef>
#include <map>
#include <set>
#include <sstream>

#include "checkpoint/client/handle.h"
#include "checkpoint/include/bellows.h"
#include "checkpoint/store/store.h"
#include "tests/unit/checkpoint/library_support.h"

using namespace bellows;
using namespace bellows::checkpoint_test;

namespace {

std::string output_of(const std::string& command) {
  std::string out;
  FILE* pipe = popen(command.c_str(), "r");
  char chunk[4096];
  while (pipe && fgets(chunk, sizeof chunk, pipe)) out += chunk;
  if (pipe) pclose(pipe);
  return out;
}

}  // namespace

#ifndef SANITIZED
Test(library, needs_libc_alone, .timeout = 30) {
  const std::string dynamic = output_of("readelf -d " LIBBELLOWS);
  cr_assert(has(dynamic, "libbellows.so.0"));
  std::size_t needed = 0;
  for (std::size_t at = 0; (at = dynamic.find("(NEEDED)", at)) != std::string::npos; ++at) ++needed;
  cr_expect(needed == 1 && has(dynamic, "[libc.so.6]"), "%s", dynamic.c_str());
}
#endif

// What programs were linked against stays, under the version it came with.
Test(library, exports_its_functions_alone, .timeout = 30) {
  const std::map<std::string, std::vector<std::string>> versions = {
      {"BELLOWS_0",
       {"error", "finalize", "init", "rank", "register", "restore", "save", "should_stop",
        "strerror", "version", "world"}},
      {"BELLOWS_0.2",
       {"error_step", "memory", "permutation", "register_array", "save_async", "saved_step",
        "unregister", "wait"}},
      {"BELLOWS_0.3", {"batch", "noise_scale", "stop_ahead"}}};
  std::set<std::string> wanted, found;
  for (const auto& [version, names] : versions) {
    wanted.insert(version);
    for (const std::string& name : names) wanted.insert("bellows_" + name + "@@" + version);
  }
  std::istringstream lines(output_of("nm -D --defined-only " LIBBELLOWS));
  for (std::string line; std::getline(lines, line);) found.insert(line.substr(line.rfind(' ') + 1));
  for (std::string node : {"BELLOWS_0", "BELLOWS_0.2", "BELLOWS_0.3"}) {
    // As some versions of nm show the nodes.
    if (found.erase(node + "@@" + node)) found.insert(node);
  }
  cr_expect(found == wanted, "%s", output_of("nm -D --defined-only " LIBBELLOWS).c_str());
}

// A field's place is for ever; new ones are appended, and `size` says who knows them.
static_assert(sizeof(void*) != 8 ||
              (offsetof(bellows_config, dir) == 8 && offsetof(bellows_config, rank) == 16 &&
               offsetof(bellows_config, world) == 20 && offsetof(bellows_config, keep) == 24 &&
               offsetof(bellows_config, keep_every) == 32 && sizeof(bellows_config) == 40));
static_assert(sizeof(void*) != 8 ||
              (offsetof(bellows_array, name) == 8 && offsetof(bellows_array, dtype) == 16 &&
               offsetof(bellows_array, ndims) == 20 && offsetof(bellows_array, shape) == 24 &&
               offsetof(bellows_array, layout) == 32 && offsetof(bellows_array, axis) == 36 &&
               offsetof(bellows_array, first) == 40 && offsetof(bellows_array, count) == 48 &&
               offsetof(bellows_array, data) == 56 && sizeof(bellows_array) == 64));

// The manual's example is compiled as a C program as it stands there, and run twice.
Test(library, the_manual_s_example_works, .timeout = 60) {
  Place place;
  const std::string dir = place.scratch.path();
  const std::string extract = "sed -n '/^.Bd -literal/,/^.Ed/p' " MANUAL
                              " | sed -e '/^\\./d' -e 's/\\\\e/\\\\/g' > " +
                              dir + "/count.c";
  cr_assert(system(extract.c_str()) == 0);
  // Sanitized libraries need a sanitized program; the compiler's name may hold options.
  const std::string compile = std::string(COMPILER) + " -Wall -Wextra -Werror -I" INCLUDES " -o " +
                              dir + "/count " + dir + "/count.c " LIBBELLOWS " -Wl,-rpath," LIBDIR;
  cr_assert(system(compile.c_str()) == 0, "%s", compile.c_str());
  cr_expect(output_of(dir + "/count") == "25\n");
  cr_expect(output_of(dir + "/count") == "25\n");
  auto newest = newest_step(place.checkpoints());
  cr_expect(newest.ok() && newest->step == 100u);
}

Test(library, bad_arguments_are_sentences, .timeout = 60) {
  Place place;
  bellows_config config = BELLOWS_CONFIG_INIT;
  bellows_t* b = nullptr;
  config.rank = 2;
  config.world = 2;
  cr_expect(bellows_init(&config, &b) == BELLOWS_ERR_INVALID);
  cr_expect(has(bellows_error(b), "rank 2 of 2"), "%s", bellows_error(b));
  cr_expect(bellows_save(b, 1) == BELLOWS_ERR_AGENT);
  cr_expect(bellows_should_stop(b, 1) == BELLOWS_ERR_AGENT);
  std::uint64_t ahead = 0;
  cr_expect(bellows_stop_ahead(b, &ahead) == BELLOWS_ERR_AGENT);
  bellows_finalize(b, 0);
  setenv("BELLOWS_RANK", "two", 1);
  cr_expect(bellows_init(nullptr, &b) == BELLOWS_ERR_INVALID);
  cr_expect(has(bellows_error(b), "BELLOWS_RANK=two is not a number"), "%s", bellows_error(b));
  bellows_finalize(b, 0);
  unsetenv("BELLOWS_RANK");
  cr_expect(bellows_init(nullptr, nullptr) == BELLOWS_ERR_INVALID);
  cr_assert(bellows_init(nullptr, &b) == BELLOWS_OK, "%s", bellows_error(b));
  cr_expect(bellows_rank(b) == 0 && bellows_world(b) == 1);
  float x[4];
  const std::uint64_t shape[] = {4}, huge[] = {1ull << 40, 1ull << 40};
  const auto refused = [&](const char* words, int rc) {
    cr_expect(rc == BELLOWS_ERR_INVALID && has(bellows_error(b), words), "%d %s", rc,
              bellows_error(b));
  };
  refused("name", bellows_register(b, "", BELLOWS_F32, 1, shape, 0, 0, 0, x));
  refused("name", bellows_register(b, nullptr, BELLOWS_F32, 1, shape, 0, 0, 0, x));
  refused("name", bellows_register(b, "a/../b", BELLOWS_F32, 1, shape, 0, 0, 0, x));
  refused("name",
          bellows_register(b, std::string(256, 'n').c_str(), BELLOWS_F32, 1, shape, 0, 0, 0, x));
  refused("data type", bellows_register(b, "x", 0, 1, shape, 0, 0, 0, x));
  refused("data type", bellows_register(b, "x", 17, 1, shape, 0, 0, 0, x));
  refused("dimensions", bellows_register(b, "x", BELLOWS_F32, 9, shape, 0, 0, 0, x));
  refused("dimensions", bellows_register(b, "x", BELLOWS_F32, -1, shape, 0, 0, 0, x));
  refused("layout", bellows_register(b, "x", BELLOWS_F32, 1, shape, 4, 0, 0, x));
  refused("at least one axis", bellows_register(b, "x", BELLOWS_F32, 0, nullptr, 1, 0, 0, x));
  cr_expect(bellows_register(b, "group/x", BELLOWS_F32, 1, shape, 0, 0, 0, x) == BELLOWS_OK);
  refused("group/x", bellows_register(b, "group", BELLOWS_F32, 1, shape, 0, 0, 0, x));
  refused("group/x", bellows_register(b, "group/x/y", BELLOWS_F32, 1, shape, 1, 0, 4, x));
  cr_expect(bellows_register(b, "group/xy", BELLOWS_F32, 1, shape, 0, 0, 0, x) == BELLOWS_OK);
  cr_expect(bellows_register(b, "group", BELLOWS_F32, 1, shape, BELLOWS_PER_RANK, 0, 0, x) ==
            BELLOWS_OK);
  cr_expect(bellows_register(b, "group/x/z", BELLOWS_F32, 1, shape, BELLOWS_VALUE, 0, 0, x) ==
            BELLOWS_OK);
  refused("extend past", bellows_register(b, "x", BELLOWS_F32, 1, shape, 1, 2, 3, x));
  refused("extend past", bellows_register(b, "x", BELLOWS_F32, 1, shape, 1, UINT64_MAX, 2, x));
  refused("too many bytes", bellows_register(b, "x", BELLOWS_F32, 2, huge, 0, 0, 0, x));
  refused("NULL", bellows_register(b, "x", BELLOWS_F32, 1, shape, 0, 0, 0, nullptr));
  refused("pointer for the step", bellows_restore(b, nullptr));
  refused("smaller", bellows_save(b, UINT64_MAX));
  cr_expect(bellows_finalize(b, 1) == BELLOWS_OK);
  cr_expect(bellows_finalize(nullptr, 1) == BELLOWS_OK);
  cr_expect_str_eq(bellows_strerror(-999), "unknown result");
}

Test(library, the_batch_is_the_ordered_one_within_the_range, .timeout = 60) {
  struct Case {
    const char* range;
    const char* ordered;
    std::uint64_t own;
    std::uint64_t batch;  ///< 0: refused
    const char* words;
  };
  const Case cases[] = {
      {nullptr, nullptr, 64, 64, ""},
      {nullptr, nullptr, 0, 0, "a batch of 0 samples is not in the job's range, 1 and more"},
      {nullptr, "256", 64, 256, ""},
      {"64-512", nullptr, 64, 64, ""},
      {"64-512", "", 512, 512, ""},
      {"64-512", nullptr, 63, 0, "a batch of 63 samples is not in the job's range, 64-512"},
      {"64-512", nullptr, 513, 0, "a batch of 513 samples"},
      {"64-512", "512", 1, 512, ""},
      {"64-512", "1024", 64, 0, "a batch of 1024 samples"},
      {"64-512", "0", 64, 0, "a batch of 0 samples"},
      {"64-512", "-1", 64, 0, "BELLOWS_BATCH=-1 is not a number"},
      {"64-512", "128x", 64, 0, "BELLOWS_BATCH=128x is not a number"},
      {"64-512", "9999999999999999999", 64, 0, "is not a number"},
      {"64", nullptr, 64, 0, "BELLOWS_BATCH_RANGE=64 is not MIN-MAX"},
      {"64-", nullptr, 64, 0, "is not MIN-MAX"},
      {"-64", nullptr, 64, 0, "is not MIN-MAX"},
      {"64-512-1024", nullptr, 64, 0, "is not MIN-MAX"},
  };
  Place place;
  bellows_t* b = nullptr;
  cr_assert(bellows_init(nullptr, &b) == BELLOWS_OK, "%s", bellows_error(b));
  const auto set = [](const char* name, const char* value) {
    value ? setenv(name, value, 1) : unsetenv(name);
  };
  for (const Case& one : cases) {
    set("BELLOWS_BATCH_RANGE", one.range);
    set("BELLOWS_BATCH", one.ordered);
    std::uint64_t batch = 7;
    const int rc = bellows_batch(b, one.own, &batch);
    cr_expect(rc == (one.batch ? BELLOWS_OK : BELLOWS_ERR_INVALID), "%s %s", one.range,
              one.ordered);
    cr_expect(batch == (one.batch ? one.batch : 7), "a refused batch is left as it is");
    cr_expect(has(bellows_error(b), one.words), "%s", bellows_error(b));
  }
  cr_expect(bellows_batch(b, 64, nullptr) == BELLOWS_ERR_INVALID);
  cr_expect(bellows_batch(nullptr, 64, nullptr) == BELLOWS_ERR_INVALID);
  cr_expect(bellows_finalize(b, 1) == BELLOWS_OK);
}

Test(library, says_the_batch_and_the_noise_of_a_training, .timeout = 60) {
  Place place;
  bellows_t* b = nullptr;
  cr_assert(bellows_init(nullptr, &b) == BELLOWS_OK, "%s", bellows_error(b));
  const bellows::wire::Control* page = b->page();
  cr_expect(page->batch == 0 && page->noise_scale == 0, "it has said nothing");
  std::uint64_t batch = 0;
  cr_assert(bellows_batch(b, 96, &batch) == BELLOWS_OK);
  cr_expect(page->batch == 96);
  const std::pair<double, std::uint64_t> scales[] = {
      {0, 1}, {0.3, 1}, {700.9, 700}, {HUGE_VAL, bellows::wire::kMostSamples}};
  for (const auto& [scale, said] : scales) {
    cr_expect(bellows_noise_scale(b, scale) == BELLOWS_OK);
    cr_expect(page->noise_scale == said, "%g", scale);
  }
  for (const double nonsense : {-1.0, -HUGE_VAL, std::nan("")}) {
    cr_expect(bellows_noise_scale(b, nonsense) == BELLOWS_ERR_INVALID);
    cr_expect(has(bellows_error(b), "is 0 or more"), "%s", bellows_error(b));
  }
  cr_expect(page->noise_scale == bellows::wire::kMostSamples, "a refused one changes nothing");
  cr_expect(bellows_noise_scale(nullptr, 1) == BELLOWS_ERR_INVALID);
  cr_expect(bellows_finalize(b, 1) == BELLOWS_OK);
}

Test(library, arrays_are_registered_in_every_layout, .timeout = 60) {
  Place place;
  bellows_t* b = nullptr;
  cr_assert(bellows_init(nullptr, &b) == BELLOWS_OK, "%s", bellows_error(b));
  double x[600] = {};
  const std::uint64_t shape[] = {10, 60}, huge[] = {1ull << 45};
  bellows_array array = BELLOWS_ARRAY_INIT;
  const auto refused = [&](const char* words, int code = BELLOWS_ERR_INVALID) {
    const int rc = bellows_register_array(b, &array);
    cr_expect(rc == code && has(bellows_error(b), words), "%d %s", rc, bellows_error(b));
  };
  array.name = "x";
  array.dtype = BELLOWS_F64;
  array.ndims = 2;
  array.shape = shape;
  array.data = x;
  for (int layout : {BELLOWS_REPLICATED, BELLOWS_PER_RANK}) {
    array.layout = layout;
    cr_expect(bellows_register_array(b, &array) == BELLOWS_OK, "%s", bellows_error(b));
  }
  array.layout = BELLOWS_VALUE;
  refused("a value has at most 4096 bytes");
  array.layout = BELLOWS_SHARDED;
  array.axis = 1;
  array.first = 40;
  array.count = 20;
  cr_expect(bellows_register_array(b, &array) == BELLOWS_OK, "%s", bellows_error(b));
  array.count = 21;
  refused("21 rows from row 40 extend past the 60 of axis 1");
  array.axis = 2;
  refused("it has no axis 2");
  array.axis = -1;
  refused("it has no axis -1");
  array.size = 4;
  refused("BELLOWS_ARRAY_INIT");
  // As of a program that was built when the struct had fewer fields.
  array = BELLOWS_ARRAY_INIT;
  array.size = offsetof(bellows_array, layout);
  array.name = "old";
  array.dtype = BELLOWS_BYTES;
  array.ndims = 1;
  array.shape = shape;
  array.layout = 99;
  refused("data is NULL");
  std::uint64_t needed = 0, before = 0, available = 0;
  cr_expect(bellows_memory(b, &before, &available) == BELLOWS_OK && available > 1 << 20);
  cr_expect(before == 2 * 4096 * ((10 * 20 * 8 + 4095) / 4096), "%lu", before);
  array = BELLOWS_ARRAY_INIT;
  array.name = "huge";
  array.dtype = BELLOWS_BYTES;
  array.ndims = 1;
  array.shape = huge;
  array.data = x;
  refused("array huge: with it the copies of rank 0's arrays need", BELLOWS_ERR_MEMORY);
  cr_expect(bellows_memory(b, &needed, nullptr) == BELLOWS_OK && needed == before);
  cr_expect(bellows_unregister(b, "huge") == BELLOWS_ERR_INVALID);
  cr_expect(bellows_unregister(b, nullptr) == BELLOWS_ERR_INVALID);
  cr_expect(bellows_unregister(b, "x") == BELLOWS_OK);
  cr_expect(bellows_memory(b, &needed, nullptr) == BELLOWS_OK && needed == 0);
  cr_expect(bellows_finalize(b, 1) == BELLOWS_OK);
}

Test(library, an_agent_that_does_not_start_is_a_sentence, .timeout = 60) {
  Place place;
  bellows_t* b = nullptr;
  setenv("BELLOWS_AGENT", "/nowhere/bellows", 1);
  cr_expect(bellows_init(nullptr, &b) == BELLOWS_ERR_AGENT);
  cr_expect(has(bellows_error(b), "cannot run /nowhere/bellows"), "%s", bellows_error(b));
  bellows_finalize(b, 0);
  setenv("BELLOWS_AGENT", "/bin/false", 1);
  cr_expect(bellows_init(nullptr, &b) == BELLOWS_ERR_AGENT);
  cr_expect(has(bellows_error(b), "ended at once"), "%s", bellows_error(b));
  bellows_finalize(b, 0);
}

Test(library, an_agent_starts_without_standard_input_and_output, .timeout = 60) {
  Place place;
  const pid_t pid = fork();
  if (pid == 0) {
    close(0);
    close(1);
    bellows_t* b = nullptr;
    const int rc = bellows_init(nullptr, &b);
    if (rc != BELLOWS_OK) fprintf(stderr, "%s\n", bellows_error(b));
    _exit(rc == BELLOWS_OK && bellows_finalize(b, 1) == BELLOWS_OK ? 0 : 1);
  }
  cr_expect(await_rank(pid) == 0);
}

Test(library, an_agent_uses_more_than_the_cpu_of_its_rank, .timeout = 60) {
  Place place;
  cpu_set_t all, one, of_agent;
  CPU_ZERO(&one);
  cr_assert(sched_getaffinity(0, sizeof all, &all) == 0);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  cr_assert(sched_setaffinity(0, sizeof one, &one) == 0);
  bellows_t* b = nullptr;
  cr_assert(bellows_init(nullptr, &b) == BELLOWS_OK, "%s", bellows_error(b));
  cr_assert(eventually([&] { return place.agent() > 0; }));
  cr_expect(sched_getaffinity(place.agent(), sizeof of_agent, &of_agent) == 0);
  cr_expect(CPU_COUNT(&of_agent) >= CPU_COUNT(&all), "%d CPUs", CPU_COUNT(&of_agent));
  cr_expect(bellows_finalize(b, 1) == BELLOWS_OK);
}

Test(library, a_socket_directory_that_others_can_enter_is_refused, .timeout = 60) {
  Place place;
  bellows_t* b = nullptr;
  const std::string dir = place.scratch.path() + "/bellows";
  mkdir(dir.c_str(), 0700);
  chmod(dir.c_str(), 0777);
  cr_expect(bellows_init(nullptr, &b) == BELLOWS_ERR_AGENT);
  cr_expect(has(bellows_error(b), dir), "%s", bellows_error(b));
  bellows_finalize(b, 0);
}

// As a process that Python forks does when it ends.
Test(library, a_forked_process_frees_the_handle_and_no_more, .timeout = 60) {
  Place place;
  bellows_t* b = nullptr;
  cr_assert(bellows_init(nullptr, &b) == BELLOWS_OK, "%s", bellows_error(b));
  std::uint64_t step = 0;
  const pid_t pid = fork();
  if (pid == 0) {
    bool right =
        bellows_save(b, 1) == BELLOWS_ERR_INVALID && has(bellows_error(b), "is a child of");
    right = right && bellows_restore(b, &step) == BELLOWS_ERR_INVALID;
    right = right && bellows_should_stop(b, 7) == BELLOWS_ERR_INVALID;
    _exit(right && bellows_finalize(b, 1) == BELLOWS_OK ? 0 : 1);
  }
  cr_expect(await_rank(pid) == 0);
  cr_expect(bellows_save(b, 1) == BELLOWS_OK, "%s", bellows_error(b));
  cr_expect(bellows_restore(b, &step) == BELLOWS_OK && step == 1);
  cr_expect(bellows_finalize(b, 1) == BELLOWS_OK);
}

Test(library, the_same_rank_twice_is_refused, .timeout = 60) {
  Place place;
  bellows_t *first = nullptr, *second = nullptr;
  cr_assert(bellows_init(nullptr, &first) == BELLOWS_OK);
  cr_expect(bellows_init(nullptr, &second) == BELLOWS_ERR_BUSY);
  cr_expect(has(bellows_error(second), "rank 0 is connected already"), "%s", bellows_error(second));
  bellows_finalize(second, 0);
  cr_expect(bellows_finalize(first, 1) == BELLOWS_OK);
}
