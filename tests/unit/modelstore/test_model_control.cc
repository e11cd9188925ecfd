// SPDX-License-Identifier: Apache-2.0
// What SPANK and administrators tell bellows-modeld.
#include <sys/stat.h>

#include "tests/unit/modelstore/model_store.h"
#include "tests/unit/support/other_user.h"

using namespace bellows;
using namespace bellows::model_test;
using modelwire::ControlOp;

namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

Test(model_control, serves_a_job_until_it_ends, .timeout = 60) {
  ModelStore store;
  store.add("m", "data");
  store.start();
  ControlClient control(store);
  const std::string path = store.path() + "/job.sock";
  plain::Handle listener;
  listen_at(path, &listener);
  const auto serve = control.request(ControlOp::serve, "a", "17");
  cr_expect(has(control.call(serve), "must come along"));
  cr_expect(control.call(serve, listener.get()) == "");
  RawClient early(path);
  cr_assert(early.send(RawClient::request(modelwire::Op::open, 1, "m")));
  cr_assert(early.receive().has_value(), "it is no longer in the queue");
  cr_expect(control.call(serve, listener.get()) == "", "it may be served again");
  cr_expect(!early.receive(), "what was served before has ended");
  listener.reset(-1);
  const OpenModel model(path, "m");
  cr_assert(model.ok(), "%s", model.error().c_str());
  RawClient client(path);
  cr_expect(control.call(ControlOp::end, "", "17") == "");
  cr_expect(!client.receive(), "its clients end with it");
  cr_expect_eq(OpenModel(path, "m").code(), BELLOWS_MODEL_ERR_UNAVAILABLE);
  cr_expect(model.data("w") == "data", "what it was lent stays readable");
  cr_expect(has(control.call(ControlOp::end, "", "17"), "no socket of job 17"));
}

Test(model_control, serves_only_sockets_that_listen, .timeout = 60) {
  ModelStore store;
  store.start();
  ControlClient control(store);
  int ends[2];
  cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const plain::Handle a(ends[0]), b(ends[1]);
  cr_expect(
      has(control.call(control.request(ControlOp::serve, "a", "1"), a.get()), "that listens"));
}

Test(model_control, a_new_version_takes_the_name, .timeout = 60) {
  ModelStore store;
  store.start();
  ControlClient control(store);
  write_file(store.file("v1"), one_tensor("w", "first"));
  write_file(store.file("v2"), one_tensor("w", "second"));
  cr_expect(control.add("a", "m", store.file("v1")) == "");
  const OpenModel first = store.open("m");
  cr_expect(first.data("w") == "first");
  cr_expect(control.add("a", "m", store.file("v2")) == "");
  const OpenModel second = store.open("m");
  cr_expect(second.data("w") == "second" && first.data("w") == "first");
  cr_expect(control.call(ControlOp::remove, "a", "m") == "");
  cr_expect_eq(store.open("m").code(), BELLOWS_MODEL_ERR_NOT_FOUND);
  cr_expect(second.data("w") == "second");
  cr_expect(has(control.call(ControlOp::remove, "a", "m"), "tenant a has no model m"));
  cr_expect(has(control.call(ControlOp::pin, "nobody", "m"), "tenant nobody has no model m"));
}

Test(model_control, pins_and_evicts, .timeout = 60) {
  ModelStore store;
  store.add("m", random_bytes(6 << 20));
  store.add("n", random_bytes(6 << 20, 2));
  store.start("10M");
  ControlClient control(store);
  cr_expect(control.call(ControlOp::pin, "a", "m") == "");
  cr_expect(store.says("loaded "));
  cr_expect_eq(store.open("n").code(), BELLOWS_MODEL_ERR_NO_ROOM);
  cr_expect(has(control.call(ControlOp::evict, "a", "m"), "in use, pinned"));
  cr_expect(control.call(ControlOp::unpin, "a", "m") == "");
  cr_expect(store.open("n").ok());
  cr_expect(control.call(ControlOp::evict, "a", "n") == "");
  cr_expect(control.call(ControlOp::evict, "a", "n") == "", "it is gone already");
}

Test(model_control, is_for_root_and_the_daemon_only, .timeout = 60) {
  if (geteuid() != 0) cr_skip_test("only root can be another user");
  ModelStore store;
  store.start();
  // Even through an open door.
  for (const std::string& path : {store.path(), store.run(), store.run() + "/control"})
    cr_assert_eq(chmod(path.c_str(), 0777), 0);
  cr_expect(holds_as(kAlice, [&] {
    plain::Handle socket;
    if (plain::connect_to((store.run() + "/control").c_str(), &socket) != 0) return false;
    pollfd p = {socket.get(), POLLIN, 0};
    return poll(&p, 1, 20000) == 1 && plain::hung_up(socket.get());
  }));
}

Test(model_control, survives_nonsense, .timeout = 60) {
  ModelStore store;
  store.add("m", "data");
  store.start();
  ControlClient control(store);
  auto bad = control.request(ControlOp::add, "a", "m");
  cr_expect(has(control.call(bad), "the path is not absolute"));
  bad.op = static_cast<ControlOp>(99);
  cr_expect(has(control.call(bad), "asks for what is unknown"));
  cr_expect(store.open("m").ok());
}

Test(model_control, writes_metrics_for_prometheus, .timeout = 60) {
  ModelStore store;
  store.add("m", random_bytes(6 << 20));
  store.add("n", random_bytes(6 << 20, 2), "tenant=b");
  store.add("broken", "data");
  write_file(store.file("broken"), "no model");
  store.option("--tenant=b=9M");
  const std::string file = store.path() + "/models.prom";
  store.option("--metrics=" + file);
  store.start("10M");
  const auto line = [&](const std::string& text) {
    return has("\n" + read_file(file), "\nbellows_modeld_" + text + "\n");
  };
  cr_assert(eventually([&] { return line("opens_total 0"); }), "it is written at once");
  {
    const OpenModel first = store.open("m"), second = store.open("m");
    cr_assert(first.ok() && second.ok());
    cr_expect_eq(store.open("n", "b").code(), BELLOWS_MODEL_ERR_NO_ROOM);
    cr_expect_eq(store.open("broken").code(), BELLOWS_MODEL_ERR_CORRUPT);
    cr_assert(eventually([&] { return line("opens_total 4"); }), "%s", read_file(file).c_str());
  }
  for (const char* each :
       {"hits_total 1", "loads_total{from=\"source\"} 1", "loads_total{from=\"disk\"} 0",
        "loads_total{from=\"node\"} 0", "load_failures_total 1", "room_refusals_total 1",
        "evictions_total 0", "budget_bytes{tier=\"memory\"} 10485760",
        "used_bytes{tier=\"memory\"} 8388608",
        "tenant_budget_bytes{tier=\"memory\",tenant=\"b\"} 9437184",
        "tenant_used_bytes{tier=\"memory\",tenant=\"a\"} 8388608", "models{state=\"memory\"} 1",
        "models{state=\"absent\"} 2", "sockets 2", "programs 2"})
    cr_expect(line(each), "%s is not in %s", each, read_file(file).c_str());
}

Test(model_control, metrics_that_cannot_be_written_stop_nobody, .timeout = 60) {
  ModelStore store;
  store.add("m", "data");
  store.option("--metrics=" + store.path() + "/absent/models.prom");
  store.start();
  cr_expect(store.says("the metrics: "));
  cr_expect(store.open("m").ok());
}
