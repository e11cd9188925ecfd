// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>

#include <cmath>
#include <string>

#include "common/controller_address.h"
#include "common/munge/munge.h"
#include "elastic/policy/seen_speeds.h"
#include "elastic/wire/message.h"

using namespace bellows;

Test(address, reads_back) {
  for (const char* text : {"@ctl:6830", "64030@ctl1:6830,ctl2.example.org:1", "1@[::1]:65535"}) {
    const auto address = ControllerAddress::parse(text);
    cr_assert(address.ok(), "%s", text);
    cr_expect(address->to_string() == text);
  }
  for (const char* text : {"", "ctl:6830", "@", "@ctl", "@ctl:0", "@ctl:65536", "@:1", "x@ctl:1",
                           "@-x:1", "@a b:1", "@ctl:1,", "4294967295@ctl:1", "@a;b:1"})
    cr_expect(!ControllerAddress::parse(text).ok(), "%s", text);
}

Test(messages, a_report_reads_back) {
  RunReport report;
  report.job = 17;
  report.restarts = 2;
  report.state = RunReport::State::stopping;
  report.gpus = 4;
  report.nodes = 2;
  report.step = 12345;
  report.step_s = 0.25;
  report.batch = 1024;
  report.noise_scale = 70000;
  report.saving = true;
  report.answer = OrderAnswer{"plan-17", false, 12, "its ranks are still starting"};
  const auto back = parse_report(to_json(report));
  cr_assert(back.ok());
  cr_expect(back->job == 17 && back->restarts == 2 && back->gpus == 4 && back->nodes == 2);
  cr_expect(back->state == RunReport::State::stopping && back->step == 12345);
  cr_expect(back->step_s == 0.25 && back->batch == 1024 && back->noise_scale == 70000 &&
            back->saving);
  cr_expect(back->answer->order == "plan-17" && !back->answer->committed);
  cr_expect(back->answer->step == 12u && back->answer->why == "its ranks are still starting");
}

Test(messages, what_a_pools_keeper_says_reads_back) {
  const auto back = parse_service_report(
      to_json(ServiceReport{.job = 17, .wanted = 12, .leaving = {4, 4000000000}}));
  cr_assert(back.ok());
  cr_expect(back->job == 17 && back->wanted == 12);
  cr_expect(back->leaving == std::vector<std::uint32_t>({4, 4000000000}));
  const auto reply = parse_service_reply(to_json(ServiceReply{.again_s = 1, .members = 3}));
  cr_assert(reply.ok());
  cr_expect(reply->again_s == 1 && reply->members == 3U);
  cr_expect(!parse_service_reply(to_json(ServiceReply{}))->members);
  const ServiceReport large{
      .job = 1, .wanted = 10'000, .leaving = std::vector<std::uint32_t>(10'000, UINT32_MAX)};
  cr_expect(to_json(large).size() < kMostBody && parse_service_report(to_json(large)).ok());
  for (const char* text :
       {"", "[]", "{}", R"({"job":0})", R"({"job":1,"wanted":-1})", R"({"job":1,"wanted":10001})",
        R"({"job":1,"leaving":7})", R"({"job":1,"leaving":["7"]})", R"({"job":1,"leaving":[0]})",
        R"({"job":1,"leaving":[4294967296]})", R"({"job":4294967296})"})
    cr_expect(!parse_service_report(text).ok(), "%s", text);
  cr_expect(!parse_service_reply(R"({"members":10001})").ok());
}

Test(messages, nonsense_is_refused) {
  const std::string head = R"({"job":1,"restarts":0,"state":"running",)";
  cr_expect(parse_report(head + R"("gpus":4})").ok());
  for (const char* rest :
       {R"("step_s":-1})", R"("step_s":1e300})", R"("step_s":"fast"})", R"("gpus":-4})",
        R"("gpus":4.5})", R"("gpus":99999999})", R"("step":18446744073709551615})",
        R"("batch":1e99})", R"("noise_scale":-1})", R"("saving":1})",
        R"("noise_scale":1099511627777})", R"("answer":[]})", R"("answer":{"order":7}})",
        R"("step_s":NaN})"})
    cr_expect(!parse_report(head + rest).ok(), "%s", rest);
  for (const char* text : {"", "[]", "{}", "nonsense", R"({"job":0,"state":"running"})",
                           R"({"job":1,"state":"flying"})"})
    cr_expect(!parse_report(text).ok(), "%s", text);
}

Test(messages, a_reply_reads_back) {
  const auto back = parse_reply(to_json(ReportReply{1.5, Order{"p-1", 8, 256}}));
  cr_assert(back.ok());
  cr_expect(back->again_s == 1.5 && back->order->id == "p-1");
  cr_expect(back->order->gpus == 8 && back->order->batch == 256);
  cr_expect(!parse_reply(to_json(ReportReply{1.5, std::nullopt}))->order);
  cr_expect(!parse_reply(R"({"order":{"id":"","gpus":4}})").ok());
  cr_expect(!parse_reply(R"({"order":{"id":"x","gpus":0}})").ok());
  // A launcher must not ask all the time, whatever it is told.
  cr_expect(parse_reply(R"({"again_s":0})")->again_s >= 0.1);
}

Test(munge, finds_the_socket_in_auth_info) {
  cr_expect(munge_socket_of("socket=/run/m.sock") == "/run/m.sock");
  cr_expect(munge_socket_of("cred_expire=70,socket=/a/b,ttl=60") == "/a/b");
  cr_expect(munge_socket_of("cred_expire=70") == "");
  cr_expect(munge_socket_of("") == "");
}

Test(munge, says_so_where_munged_is_away) {
  const Munge munge("/nonexistent/munge.socket");
  const auto sealed = munge.seal("text", 0, std::chrono::seconds(60));
  cr_assert(!sealed.ok());
  cr_expect(sealed.error().kind == ErrorKind::unavailable);
  cr_expect(munge.open("MUNGE:nonsense:").error().kind == ErrorKind::unavailable);
}

Test(seen_speeds, know_what_was_seen_and_guess_between) {
  SeenSpeeds speeds;
  cr_expect(speeds.at(4) == 4);
  speeds.add(2, 20);
  cr_expect(speeds.at(2) == 20 && speeds.at(4) == 40 && speeds.at(1) == 10);
  speeds.add(8, 40);
  cr_expect(std::abs(speeds.at(4) - std::sqrt(20.0 * 40.0)) < 1e-9);
  cr_expect(std::abs(speeds.at(32) - 80) < 1e-9, "it doubles with four times the GPUs");
  for (const double nonsense : {0.0, -1.0, std::nan(""), HUGE_VAL}) speeds.add(2, nonsense);
  cr_expect(speeds.at(2) == 20);
  speeds.add(2, 30);
  cr_expect(speeds.at(2) > 20 && speeds.at(2) < 30);
}
