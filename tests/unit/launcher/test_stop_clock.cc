// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>

#include <cmath>

#include "launcher/machine/stop_clock.h"
#include "launcher/slurm/limit_probe.h"

using namespace bellows;

namespace {

constexpr double kDay = 86400;

bool near(double a, double b) { return std::fabs(a - b) < 1e-6; }

}  // namespace

Test(stop_clock, guesses_until_a_save_was_seen) {
  StopClock clock;
  cr_expect(!clock.has_saved());
  cr_expect(clock.lead(kDay) >= 30, "an unknown save may take long");
  clock.note_save(1000, 1);
  cr_expect(clock.lead(kDay) < 20, "a known one does not");
}

Test(stop_clock, leaves_time_for_the_save_a_step_and_a_margin) {
  StopClock clock;
  clock.note_save(1'000'000, 100);
  clock.note_step(1, 0);
  clock.note_step(2, 40);
  cr_expect(near(clock.save_seconds(), 100) && near(clock.step_seconds(), 40));
  cr_expect(clock.lead(kDay) > 100 + 40, "%f", clock.lead(kDay));
  cr_expect(clock.lead(kDay) < 300, "%f", clock.lead(kDay));
}

Test(stop_clock, goes_by_the_slowest_of_the_last_saves) {
  StopClock clock;
  clock.note_save(100, 60);
  clock.note_save(100, 10);
  cr_expect(near(clock.save_seconds(), 60));
  for (int i = 0; i < 4; ++i) clock.note_save(100, 10);
  cr_expect(near(clock.save_seconds(), 10), "an old one does not count for ever");
  clock.note_save(200, 10);
  cr_expect(near(clock.save_seconds(), 20), "a state that has grown takes longer");
  clock.note_save(0, 1);
  clock.note_save(200, -1);
  cr_expect(std::isfinite(clock.save_seconds()) && clock.save_seconds() > 0);
}

Test(stop_clock, learns_steps_from_occasional_reports) {
  StopClock clock;
  cr_expect(clock.step_seconds() == 0);
  clock.note_step(10, 100);
  clock.note_step(10, 101);
  clock.note_step(20, 105);
  cr_expect(near(clock.step_seconds(), 0.5), "%f", clock.step_seconds());
  clock.forget_steps();
  clock.note_step(12, 200);
  clock.note_step(12, 203);
  clock.note_step(13, 204);
  cr_expect(near(clock.step_seconds(), 4), "%f", clock.step_seconds());
  clock.note_step(11, 205);
  clock.note_step(12, 206);
  cr_expect(near(clock.step_seconds(), 4), "ranks that went back do not confuse it");
}

Test(stop_clock, leaves_a_short_run_half_of_its_time) {
  StopClock clock;
  cr_expect(near(clock.lead(60), 30));
  clock.note_save(1, 1000);
  cr_expect(near(clock.lead(60), 30));
  cr_expect(near(StopClock::lead_of_own(120, kDay), 130));
  cr_expect(near(StopClock::lead_of_own(120, 100), 50));
}

Test(stop_clock, complains_when_a_preemption_is_too_fast) {
  StopClock clock;
  SlurmGrace grace{true, 10};
  cr_expect(clock.complaint(grace) == "", "nothing is known yet");
  clock.note_save(40'000'000'000, 55);
  cr_expect(clock.complaint(grace).find("40000.0 MB take about 55.0 s") != std::string::npos, "%s",
            clock.complaint(grace).c_str());
  cr_expect(clock.complaint({true, 60}) == "");
  cr_expect(clock.complaint({false, 0}) == "", "nobody preempts it");
  clock.note_step(1, 0);
  clock.note_step(2, 10);
  cr_expect(clock.complaint({true, 60}) != "", "the ranks first finish their step");
  const std::string at_once = clock.complaint({true, 0, 15});
  cr_expect(
      at_once.find("0 s (GraceTime; what KillWait leaves after SIGTERM, 15 s") != std::string::npos,
      "%s", at_once.c_str());
}

Test(stop_clock, complains_when_the_time_limit_is_too_short) {
  StopClock clock;
  cr_expect(clock.complaint(60.0) == "", "a guess is no reason");
  clock.note_save(1000, 100);
  cr_expect(clock.complaint(kDay) == "");
  cr_expect(clock.complaint(320.0) == "", "150 s for the save and 10 s are half of it");
  const std::string text = clock.complaint(319.0);
  cr_expect(text.find("a stop may take 160 s, but the time limit leaves a run 319 s") == 0, "%s",
            text.c_str());
  cr_expect(StopClock::complaint_of_own(120, 260) == "");
  cr_expect(StopClock::complaint_of_own(120, 259).find("may take 130 s") != std::string::npos);
}

Test(job_limits, survive_their_line_and_refuse_others) {
  const JobLimits limits{-3, 86400, true, {true, 30, 15}};
  auto back = JobLimits::from_line(limits.to_line());
  cr_assert(back.has_value());
  cr_expect(*back == limits);
  for (const char* bad :
       {"", "\n", "1 2 0 0 0 0", "1 2 0 0 0\n", "1 2 0 0 0 0 0\n", "1 x 0 0 0 0\n",
        "1 2 0 0 -1 0\n", "1 2 0 0 0 -1\n", "99999999999 2 0 0 0 0\n"})
    cr_expect(!JobLimits::from_line(bad), "%s", bad);
}
