// SPDX-License-Identifier: Apache-2.0
// What the simulator reads: tables, measured steps, measured programs.
#include <criterion/criterion.h>

#include <string>
#include <vector>

#include "elastic/simulate/application.h"
#include "elastic/simulate/csv.h"
#include "elastic/simulate/step_table.h"
#include "tests/unit/elastic/simulate_support.h"
#include "tests/unit/support/text_support.h"

using namespace bellows;

TestSuite(csv, .timeout = 20);
TestSuite(step_table, .timeout = 20);
TestSuite(application, .timeout = 20);

namespace {

Csv parsed(const std::string& text) {
  auto csv = Csv::parse(text, "some.csv");
  cr_assert(csv.ok(), "%s", csv.ok() ? "" : csv.error().text.c_str());
  return *csv;
}

std::string wrong_number(const std::string& cell) {
  const auto number = parsed("a\n" + cell + "\n").number(0, 0, 1);
  return number ? "" : number.error().text;
}

std::string wrong_whole(const std::string& cell) {
  const auto whole = parsed("a\n" + cell + "\n").whole(0, 0, 1);
  return whole ? "" : whole.error().text;
}

const std::string kPlacements =
    "placement,local_bsz,step_time,sync_time\n"
    "1,10,1,0\n"
    "1,20,1.8,0\n"
    "1,40,3,0.2\n"
    "12,20,3,0.5\n"
    "12,10,2,0.5\n"
    "13,10,3,1\n"
    "22,10,5,2\n"
    "1122,10,9,1\n";
const std::string kScalability =
    "num_nodes,num_replicas,local_bsz,step_time,sync_time\n"
    "4,4,10,4,2\n"
    "4,8,10,6,3\n"
    "4,8,20,8,3\n";

Result<StepTable> steps_of(const std::string& placements, const std::string& scalability) {
  const MeasuredFolder folder;
  folder.write("placements.csv", placements);
  folder.write("scalability.csv", scalability);
  return StepTable::read(folder.path());
}

StepTable small_table() {
  auto table = steps_of(kPlacements, kScalability);
  cr_assert(table.ok(), "%s", table.ok() ? "" : table.error().text.c_str());
  return *table;
}

bool is(const MeasuredStep& step, double step_s, double exchange_s) {
  return near(step.step_s, step_s) && near(step.exchange_s, exchange_s);
}

/// The error of a table of placements with this line as its third.
std::string wrong_placement(const std::string& line) {
  const auto table =
      steps_of("placement,local_bsz,step_time,sync_time\n1,10,1,0\n" + line + "\n", kScalability);
  return table ? "" : table.error().text;
}

std::string wrong_scalability(const std::string& line) {
  const auto table = steps_of(kPlacements, kScalability + line + "\n");
  return table ? "" : table.error().text;
}

const std::string kTitles = "progress,iteration,metric,grad_sqr,grad_var\n";

struct ProgramFolder : MeasuredFolder {
  ProgramFolder() {
    write("placements.csv", kPlacements);
    write("scalability.csv", kScalability);
    write("validation-10.csv", kTitles + "100,100,x,2,4\n200,210,x,1,8\n300,330,x,1,9\n");
    write("validation-30.csv", kTitles + "90,50,x,4,8\n210,100,x,3,6\n");
    write("validation-40.csv", kTitles + "100,40,x,4,2\n205,90,x,3,6\n");
    write("validation-x.csv", "not one of them\n");
  }
  Result<Application> read(const ApplicationTerms& terms = {}) const {
    return Application::read(path(), terms);
  }
  std::string wrong(const ApplicationTerms& terms = {}) const {
    const auto application = read(terms);
    return application ? "" : application.error().text;
  }
};

}  // namespace

Test(csv, has_titles_and_cells) {
  const Csv csv = parsed("a, b\r\n\r\n 1 ,x y\r\n2.5,\r\n");
  cr_expect(csv.rows() == 2);
  cr_expect(*csv.column("a") == 0 && *csv.column("b") == 1);
  cr_expect(csv.text(0, 0) == "1" && csv.text(0, 1) == "x y" && csv.text(1, 1).empty());
  cr_expect(*csv.number(1, 0, 0) == 2.5 && *csv.whole(0, 0, 1) == 1);
  cr_expect(parsed("").rows() == 0 && !parsed("").column("a"));
  cr_expect(parsed("a,b\n").rows() == 0);
}

Test(csv, errors_name_file_and_line) {
  const auto missing = parsed("a,b\n1,2\n").column("c");
  cr_expect(!missing && has(missing.error().text, "some.csv has no column \"c\""));
  for (const char* text : {"a,b\n1,2\n\n1\n", "a,b\n1,2\n\n1,2,3\n"}) {
    const auto csv = Csv::parse(text, "some.csv");
    cr_expect(!csv && csv.error().kind == ErrorKind::invalid);
    cr_expect(has(csv.error().text, "some.csv, line 4: "), "%s", csv.error().text.c_str());
    cr_expect(has(csv.error().text, "under 2 titles"));
  }
  const Csv late = parsed("\n\na\n\n1\n\n-7\n");
  const auto number = late.number(1, 0, 0);
  cr_expect(!number && has(number.error().text, "some.csv, line 7: \"-7\" of a must be"));
  cr_expect(late.error_at(0, "it is odd").text == "some.csv, line 5: it is odd");
}

Test(csv, refuses_what_is_no_number) {
  for (const char* cell : {"x", "nan", "inf", "-inf", "1e999", "0x10", "1 2", "+1", "1.5s"})
    cr_expect(has(wrong_number(cell), "must be a number of at least 1"), "%s", cell);
  for (const char* cell : {"1", "1e3", "1.5"}) cr_expect(wrong_number(cell).empty(), "%s", cell);
  for (const char* cell : {"0.99", "-1", "0", "1e-300"})
    cr_expect(has(wrong_number(cell), "must be a number of at least 1"), "%s", cell);
  for (const char* cell :
       {"x", "1.5", "-1", "+1", "0", "1e3", "4294967296", "99999999999999999999"})
    cr_expect(has(wrong_whole(cell), "must be a whole number"), "%s", cell);
  cr_expect(wrong_whole("4294967295").empty());
  cr_expect(wrong_number("\x1b[2J" + std::string(500, 'x')).find('\x1b') == std::string::npos);
}

Test(csv, says_what_it_can_not_read) {
  const MeasuredFolder folder;
  const auto none = Csv::read(folder.path() + "/none.csv");
  cr_expect(!none && none.error().kind == ErrorKind::not_found);
  cr_expect(has(none.error().text, folder.path() + "/none.csv"));
  const auto itself = Csv::read(folder.path());
  cr_expect(!itself && itself.error().kind == ErrorKind::io, "a folder is no table");
  folder.write("empty.csv", "");
  cr_expect(Csv::read(folder.path() + "/empty.csv").ok());
}

Test(step_table, goes_along_the_local_batch) {
  const StepTable table = small_table();
  cr_expect(table.smallest_local() == 10 && table.largest_local() == 40);
  cr_expect(is(table.at({1}, 10), 1, 0) && is(table.at({1}, 20), 1.8, 0));
  cr_expect(is(table.at({1}, 15), 1.4, 0));
  cr_expect(is(table.at({1}, 30), 2.4, 0.1));
  cr_expect(is(table.at({1}, 40), 3, 0.2));
  cr_expect(is(table.at({1}, 50), 3.6, 0.3), "it goes on as between the last two");
  cr_expect(is(table.at({1}, 5), 0.6, 0));
  cr_expect(is(table.at({1, 2}, 15), 2.5, 0.5), "whatever the order of the lines");
}

Test(step_table, a_rotation_is_the_same_placement) {
  const StepTable table = small_table();
  cr_expect(is(table.at({2, 1}, 10), 2, 0.5));
  cr_expect(is(table.at({3, 1}, 10), 3, 1));
  for (const Placement& rotated : {Placement{1, 1, 2, 2}, {1, 2, 2, 1}, {2, 2, 1, 1}, {2, 1, 1, 2}})
    cr_expect(is(table.at(rotated, 10), 9, 1));
  cr_expect(layout_of({2, 1, 1, 2}) == (GpuLayout{4, 6}));
}

Test(step_table, goes_between_layouts) {
  const StepTable table = small_table();
  // The placements of a layout are as one, by their mean.
  cr_expect(is(table.at({1, 2, 1, 2}, 10), 9, 1), "not a rotation, but of the same layout");
  cr_expect(is(table.at({1, 1, 1, 2}, 10), 6.5, 1.5), "5 GPUs, between 4 and 6");
  cr_expect(is(table.at({4}, 15), 1.4, 0), "beyond the most GPUs of a node as with the most");
  cr_expect(is(table.at({1, 1}, 15), 2.5, 0.5), "below the fewest as with the fewest");
  // With 2 on each node: (3 + 5) / 2 on two nodes, 6 on four; 1.5 and 3 of them exchange.
  cr_expect(is(table.at({2, 2, 2}, 10), 5, 2.25));
  cr_expect(is(table.at({1, 1, 1, 1, 1, 3}, 20), 8, 3), "more nodes than measured");
}

Test(step_table, errors_name_file_and_line) {
  cr_expect(wrong_placement("2,10,1,0.5").empty());
  for (const char* line : {"x,10,1,0", "0,10,1,0", "102,10,1,0", "-1,10,1,0"})
    cr_expect(has(wrong_placement(line), "placements.csv, line 3: a placement has"), "%s", line);
  cr_expect(has(wrong_placement(",10,1,0"), "placements.csv, line 3: the placement is empty"));
  for (const char* line :
       {"1,0,1,0", "1,10.5,1,0", "1,10,nan,0", "1,10,1,-1", "1,10,1", "1,10,1,0,0"})
    cr_expect(has(wrong_placement(line), "placements.csv, line 3: "), "%s", line);
  for (const char* line : {"1,10,1,1", "1,10,1,2", "1,10,0,0"})
    cr_expect(has(wrong_placement(line), "line 3: the exchange of gradients"), "%s", line);
  for (const char* line : {"0,1,10,1,0", "4,3,10,1,0", "4,4,10,1,1", "4,x,10,1,0"})
    cr_expect(has(wrong_scalability(line), "scalability.csv, line 5: "), "%s", line);
  const auto no_column = steps_of("placement,local_bsz,step_time\n1,10,1\n", kScalability);
  cr_expect(!no_column && has(no_column.error().text, "has no column \"sync_time\""));
  const auto no_line = steps_of("placement,local_bsz,step_time,sync_time\n", kScalability);
  cr_expect(!no_line && has(no_line.error().text, "has no line"));
  const auto none = StepTable::read("/nonexistent");
  cr_expect(!none && none.error().kind == ErrorKind::not_found);
}

Test(application, takes_limits_from_what_was_measured) {
  const ProgramFolder folder;
  const auto application = folder.read();
  cr_assert(application.ok());
  const BatchLimits& limits = application->limits();
  cr_expect(limits.submitted == 10 && limits.smallest == 10 && limits.largest == 40);
  cr_expect(limits.smallest_local == 10 && limits.largest_local == 40);
  cr_expect(application->largest_gpus() == 4, "10 samples for each");
  cr_expect(has(folder.path(), application->name()) && !application->name().empty());
}

Test(application, takes_less_from_its_terms) {
  const ProgramFolder folder;
  const auto application =
      folder.read({.largest_gpus = 2, .smallest_batch = 25, .largest_local = 20});
  cr_assert(application.ok());
  cr_expect(application->limits().submitted == 10 && application->limits().smallest == 25);
  cr_expect(application->limits().largest_local == 20 && application->largest_gpus() == 2);
  for (const ApplicationTerms& none :
       {ApplicationTerms{.smallest_batch = 41}, ApplicationTerms{.largest_local = 9}})
    cr_expect(has(folder.wrong(none), "leave no batch between 10 and 40"));
}

Test(application, progress_is_the_least_of_all_batches) {
  const ProgramFolder folder;
  const auto application = folder.read();
  cr_assert(application.ok());
  cr_expect(application->epochs() == 2, "as many as all batches were measured for");
  cr_expect(application->progress(0) == 0 && application->progress(1) == 90);
  cr_expect(application->progress(2) == 200);
}

Test(application, goes_between_batches) {
  const ProgramFolder folder;
  const auto application = folder.read();
  cr_assert(application.ok());
  cr_expect(application->noise(10, 0) == (GradientNoise{2, 4}));
  cr_expect(application->noise(20, 0) == (GradientNoise{3, 6}));
  cr_expect(application->noise(35, 0) == (GradientNoise{4, 5}));
  cr_expect(application->noise(30, 1) == (GradientNoise{3, 6}));
  cr_expect(application->noise(5, 0) == application->noise(10, 0));
  cr_expect(application->noise(1u << 31, 0) == application->noise(40, 0));
  cr_expect(application->noise(std::uint64_t{1} << 40, 0) == application->noise(40, 0));
  cr_expect(application->steps_until(20, 0) == 0);
  cr_expect(near(application->steps_until(20, 1), 75));
  cr_expect(near(application->steps_until(10, 2), 210));
}

Test(application, errors_name_file_and_line) {
  ProgramFolder folder;
  folder.write("validation-40.csv", kTitles + "100,40,x,4,2\n100,90,x,3,6\n");
  cr_expect(has(folder.wrong(), "validation-40.csv, line 3: progress must grow"));
  folder.write("validation-40.csv", kTitles + "0,40,x,4,2\n");
  cr_expect(has(folder.wrong(), "validation-40.csv, line 2: progress must grow"));
  folder.write("validation-40.csv", kTitles + "1,40,x,nan,2\n");
  cr_expect(has(folder.wrong(), "validation-40.csv, line 2: \"nan\" of grad_sqr"));
  folder.write("validation-40.csv", kTitles);
  cr_expect(has(folder.wrong(), "validation-40.csv has no epoch"));
  folder.write("validation-40.csv", "progress,iteration\n1,2\n");
  cr_expect(has(folder.wrong(), "validation-40.csv has no column \"grad_sqr\""));
  for (const char* batch : {"10", "30", "40"})
    folder.remove(std::string("validation-") + batch + ".csv");
  cr_expect(has(folder.wrong(), "has no file validation-BATCH.csv"));
  folder.remove("scalability.csv");
  cr_expect(has(folder.wrong(), "scalability.csv"));
}
