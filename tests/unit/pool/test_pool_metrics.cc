// SPDX-License-Identifier: Apache-2.0
// Metrics in Prometheus' text form: what vLLM and Triton say, and what nobody should.
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <thread>

#include "common/fd.h"
#include "pool/member/prometheus_text.h"
#include "pool/member/scrape_notes.h"
#include "pool/member/scraper.h"

using namespace bellows;
using namespace bellows::pool;
using namespace std::chrono_literals;

namespace {

PrometheusMetric one(const std::string& text, const std::string& name) {
  const auto read = read_prometheus_text(text, {name});
  cr_assert_eq(read.metrics.size(), 1, "%s is not in: %s", name.c_str(), text.c_str());
  return read.metrics.begin()->second;
}

double value_of(const std::string& text) { return one(text + "\n", "a").value; }

const std::string kVllm = R"(# HELP vllm:num_requests_running Number of requests in model execution.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 8.0
vllm:num_requests_running{engine="1",model_name="meta-llama/Llama-3.1-8B-Instruct"} 3.0
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.125
# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 2.7453e+04
# HELP vllm:time_to_first_token_seconds Histogram of time to first token in seconds.
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{le="0.001",model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.0
vllm:time_to_first_token_seconds_bucket{le="+Inf",model_name="meta-llama/Llama-3.1-8B-Instruct"} 140.0
vllm:time_to_first_token_seconds_count{model_name="meta-llama/Llama-3.1-8B-Instruct"} 140.0
vllm:time_to_first_token_seconds_sum{model_name="meta-llama/Llama-3.1-8B-Instruct"} 3.25
)";

const std::string kTriton =
    R"(# HELP nv_inference_queue_duration_us Cumulative inference queuing duration in microseconds (includes cached requests)
# TYPE nv_inference_queue_duration_us counter
nv_inference_queue_duration_us{model="resnet50",version="1"} 19376
nv_inference_queue_duration_us{model="bert",version="3"} 24
# HELP nv_inference_pending_request_count Instantaneous number of pending requests awaiting execution per-model.
# TYPE nv_inference_pending_request_count gauge
nv_inference_pending_request_count{model="resnet50",version="1"} 4
# HELP nv_inference_queue_summary_us Summary of inference queuing duration in microseconds
# TYPE nv_inference_queue_summary_us summary
nv_inference_queue_summary_us{model="resnet50",version="1",quantile="0.5"} 119
nv_inference_queue_summary_us{model="resnet50",version="1",quantile="0.9"} NaN
nv_inference_queue_summary_us_count{model="resnet50",version="1"} 161
nv_inference_queue_summary_us_sum{model="resnet50",version="1"} 19376
)";

constexpr std::chrono::steady_clock::time_point kThen{1h};
constexpr std::chrono::system_clock::time_point kWall{400'000h};

/// So many seconds after the first one.
Scrape scrape_of(const std::string& text, const MetricNames& names, int seconds = 0) {
  return {read_prometheus_text(text, names), kThen + std::chrono::seconds(seconds),
          kWall + std::chrono::seconds(seconds)};
}

/// A program that answers one request after the other, as a test says.
class Program {
 public:
  /// What is sent to a socket; it is closed then. True: there is more, so call it again.
  using Answer = std::function<bool(int socket)>;

  explicit Program(Answer answer) : answer_(std::move(answer)) {
    socket_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    cr_assert_eq(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    cr_assert_eq(listen(socket_.get(), 8), 0);
    getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/metrics";
    thread_ = std::thread([this] { serve(); });
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    ends_ = true;
    thread_.join();
  }

  std::string url;

 private:
  static bool readable(int fd) {
    pollfd poll{fd, POLLIN, 0};
    return ::poll(&poll, 1, 20) > 0;
  }

  void serve() {
    while (!ends_) {
      if (!readable(socket_.get())) continue;
      const Fd caller(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      std::string request;
      char bytes[4096];
      while (!ends_ && !request.ends_with("\r\n\r\n")) {
        if (!readable(caller.get())) continue;
        const ssize_t count = recv(caller.get(), bytes, sizeof bytes, 0);
        if (count <= 0) break;
        request.append(bytes, static_cast<std::size_t>(count));
      }
      while (!ends_ && answer_(caller.get())) {
      }
    }
  }

  const Answer answer_;
  Fd socket_;
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

bool send_text(int socket, const std::string& text) {
  (void)!send(socket, text.data(), text.size(), MSG_NOSIGNAL);
  return false;
}

std::string http(const std::string& status, const std::string& body) {
  return "HTTP/1.1 " + status +
         "\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         body;
}

/// Until the scraper has something, or for ten seconds.
void await(const Scraper& scraper) {
  pollfd poll{scraper.bell().get(), POLLIN, 0};
  cr_assert_eq(::poll(&poll, 1, 10'000), 1, "the scraper says nothing");
  std::uint64_t rings = 0;
  cr_assert_eq(read(scraper.bell().get(), &rings, sizeof rings), sizeof rings);
}

std::unique_ptr<Scraper> start(const Program& program) {
  auto scraper = Scraper::start(program.url, {"a"});
  cr_assert(scraper.ok());
  return std::move(*scraper);
}

/// How the scraper says that it has got nothing.
std::string trouble_with(const Program::Answer& answer) {
  const Program program(answer);
  const auto scraper = start(program);
  await(*scraper);
  cr_expect_not(scraper->take_scrape().has_value());
  return scraper->take_trouble().value_or("none");
}

void expect_trouble(const Program::Answer& answer, const std::string& words) {
  const std::string trouble = trouble_with(answer);
  cr_expect_neq(trouble.find(words), std::string::npos, "%s", trouble.c_str());
}

}  // namespace

Test(prometheus_text, vllm_is_read) {
  const auto read = read_prometheus_text(
      kVllm, {"vllm:num_requests_running", "vllm:generation_tokens_total",
              "vllm:time_to_first_token_seconds_sum", "vllm:time_to_first_token_seconds_bucket"});
  cr_expect_eq(read.wrong_lines, 0);
  cr_expect_eq(read.samples, 8);
  cr_assert_eq(read.metrics.size(), 3, "the buckets are left out");
  const auto& running = read.metrics.at("vllm:num_requests_running");
  cr_expect(running.value == 11 && !running.counter && !running.wrong && !running.oldest_ms);
  const auto& tokens = read.metrics.at("vllm:generation_tokens_total");
  cr_expect(tokens.value == 27453 && tokens.counter);
  const auto& first = read.metrics.at("vllm:time_to_first_token_seconds_sum");
  cr_expect(first.value == 3.25 && first.counter);
}

Test(prometheus_text, triton_is_read) {
  const auto queued = one(kTriton, "nv_inference_queue_duration_us");
  cr_expect(queued.value == 19400 && queued.counter);
  const auto pending = one(kTriton, "nv_inference_pending_request_count");
  cr_expect(pending.value == 4 && !pending.counter, "its name ends like a part of a summary");
  cr_expect(one(kTriton, "nv_inference_queue_summary_us_count").counter);
  cr_expect(read_prometheus_text(kTriton, {"nv_inference_queue_summary_us"}).metrics.empty());
}

Test(prometheus_text, every_form_of_a_line_is_read) {
  cr_expect_eq(value_of("a 1"), 1);
  cr_expect_eq(value_of("  a\t1e3  "), 1000);
  cr_expect_eq(value_of("a{} -2.5"), -2.5);
  cr_expect_eq(value_of("a { x = \"1\" , y=\"2\", } +3"), 3);
  cr_expect_eq(value_of(R"(a{x="} 7 \" \\ \n #"} 4)"), 4);
  cr_expect_eq(value_of("a{x=\"\u00fc\"} 4\r"), 4);
  cr_expect(std::isnan(value_of("a NaN")));
  cr_expect(std::isinf(value_of("a +Inf")) && value_of("a -Inf") < 0);
  const auto timed = one("a 1 1395066363000\na{x=\"1\"} 2 1395066362000\na{x=\"2\"} 4\n", "a");
  cr_expect(timed.value == 7 && timed.oldest_ms == 1395066362000);
  cr_expect(one("a_total 1\n", "a_total").counter);
  cr_expect_not(one("# TYPE a_total gauge\na_total 1\n", "a_total").counter);
  cr_expect_not(one("# HELP a TYPE a counter\n#\n# TYPE\n\na 1\n", "a").counter);
}

Test(prometheus_text, a_wrong_line_is_counted_and_spoils_its_name_alone) {
  for (const char* line : {"a",
                           "a ",
                           "a x",
                           "a 1 x",
                           "a 1 2 3",
                           "a{",
                           "a{x} 1",
                           "a{x=1} 1",
                           "a{x=\"1} 1",
                           "a{x=\"\\t\"} 1",
                           "a{x=\"1\"",
                           "a{1x=\"1\"} 1",
                           "a{x=\"1\" y=\"2\"} 1",
                           "a{,} 1",
                           "a 0x10",
                           "a 1e999",
                           "a +-1",
                           "a ++1",
                           "a 1,5",
                           "a 1 99999999999999999",
                           "a=1",
                           "a 1_000"}) {
    const auto read = read_prometheus_text("a 5\n" + std::string(line) + "\nb 2\n", {"a", "b"});
    cr_expect_eq(read.wrong_lines, 1, "%s", line);
    cr_expect(read.metrics.at("a").wrong, "%s", line);
    cr_expect(read.metrics.at("b").value == 2 && !read.metrics.at("b").wrong, "%s", line);
  }
  for (const char* line : {"1a 1", "{x=\"1\"} 1", "# TYPE a thing", "# TYPE a", "<html>",
                           "# TYPE b counter x", "\x01\xff"}) {
    const auto read = read_prometheus_text("a 5\n" + std::string(line) + "\n", {"a", "b"});
    cr_expect_eq(read.wrong_lines, 1, "%s", line);
    cr_expect_not(read.metrics.at("a").wrong, "%s", line);
  }
  cr_expect(one("a 5\na 6", "a").wrong, "the last line may be cut off");
  cr_expect_eq(read_prometheus_text("# TYPE a gauge\n# TYPE a counter\n", {"a"}).wrong_lines, 1);
}

Test(prometheus_text, limits_are_kept) {
  const std::string blanks(PrometheusText::kMostLine, ' ');
  cr_expect(one("a " + blanks + "1\n", "a").wrong);
  std::string labels;
  for (std::size_t i = 0; i < PrometheusText::kMostLabels; ++i)
    labels += "l" + std::to_string(i) + "=\"\",";
  cr_expect_not(one("a{" + labels + "} 1\n", "a").wrong);
  cr_expect(one("a{" + labels + "x=\"\"} 1\n", "a").wrong);
  std::string many;
  for (std::size_t i = 0; i < PrometheusText::kMostSamples; ++i) many += "a 1\n";
  cr_expect_eq(one(many, "a").value, PrometheusText::kMostSamples);
  const auto read = read_prometheus_text(many + "b 1\n", {"a"});
  cr_expect(read.too_many && read.metrics.empty());
  cr_expect(read_prometheus_text(std::string(4 << 20, '{'), {"a"}).metrics.empty());
}

Test(scrape_notes, figures_are_noted_and_counters_as_rates) {
  MemberNotes notes;
  ScrapeNotes scrapes;
  const MetricNames names = names_to_scrape(
      {"vllm:num_requests_running", "vllm:generation_tokens_total.rate", "cpu", "gpu", "memory"});
  cr_assert(names == MetricNames({"vllm:generation_tokens_total", "vllm:num_requests_running"}));
  scrapes.take(scrape_of(kVllm, names), notes);
  cr_assert_eq(notes.metrics.size(), 1, "one look tells no rate");
  cr_expect(notes.metrics.at("vllm:num_requests_running").value == 11);
  cr_expect(notes.metrics.at("vllm:num_requests_running").at == kThen);
  const std::string total = "vllm:generation_tokens_total";
  scrapes.take(scrape_of(total + " 27653\n", names, 2), notes);
  cr_expect(notes.metrics.at(total + ".rate").value == 100);
  cr_expect(notes.metrics.at(total + ".rate").at == kThen + 2s);
  cr_expect(notes.metrics.at("vllm:num_requests_running").at == kThen, "it is not there any more");
  scrapes.take(scrape_of(total + " 8\n", names, 3), notes);
  cr_expect(notes.metrics.at(total + ".rate").at == kThen + 2s, "it was started again");
  scrapes.take(scrape_of(total + " 28\n", names, 4), notes);
  cr_expect(notes.metrics.at(total + ".rate").value == 20);
  cr_expect_eq(notes.metrics.size(), 2);
}

Test(scrape_notes, what_is_not_whole_is_not_noted_and_what_is_old_stays_so) {
  MemberNotes notes;
  ScrapeNotes scrapes;
  scrapes.take(scrape_of("a 5\n", {"a"}), notes);
  for (const char* text : {"a 6\na{ 7\n", "a 6", "a NaN\n", "a +Inf\n", "", "a 1\na -Inf\n"})
    scrapes.take(scrape_of(text, {"a"}, 9), notes);
  cr_assert_eq(notes.metrics.size(), 1);
  cr_expect(notes.metrics.at("a").value == 5 && notes.metrics.at("a").at == kThen);
  const auto wall = std::chrono::duration_cast<std::chrono::milliseconds>(kWall.time_since_epoch());
  const auto said = [&](std::chrono::milliseconds age) {
    scrapes.take(scrape_of("a 6 " + std::to_string((wall - age).count()) + "\n", {"a"}), notes);
    return kThen - notes.metrics.at("a").at;
  };
  cr_expect(said(40s) == 40s, "a program passes on what it was told 40 seconds ago");
  cr_expect(said(-40s) == 0s, "no figure is from the future");
  cr_expect(said(wall) == 24h);
  const std::string same = "b_total 1 " + std::to_string(wall.count()) + "\n";
  scrapes.take(scrape_of(same, {"b_total"}), notes);
  scrapes.take(scrape_of(same, {"b_total"}, 1), notes);
  cr_expect_not(notes.metrics.contains("b_total.rate"), "the same sample twice tells no rate");
}

Test(scraper, a_program_is_asked_again_and_again, .timeout = 60) {
  std::atomic<int> asked = 0;
  const Program program([&](int socket) {
    return send_text(socket, http("200 OK", "a " + std::to_string(++asked) + "\nb 1\n"));
  });
  const auto scraper = start(program);
  for (int i = 1; i <= 2; ++i) {
    await(*scraper);
    const auto scrape = scraper->take_scrape();
    cr_assert(scrape);
    cr_expect_eq(scrape->text.metrics.size(), 1);
    cr_expect_eq(scrape->text.metrics.at("a").value, i);
    cr_expect_not(scraper->take_scrape().has_value(), "an answer is taken once");
    cr_expect_not(scraper->take_trouble().has_value());
  }
}

Test(scraper, what_is_no_success_is_not_used, .timeout = 60) {
  const auto sends = [](const std::string& text) {
    return [text](int socket) { return send_text(socket, text); };
  };
  expect_trouble(sends(http("500 Broken", "a 1\n")), "HTTP status 500");
  expect_trouble(sends("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n"
                       "Content-Length: 4\r\n\r\na 1\n"),
                 "HTTP status 302");
  expect_trouble(sends("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\na 1\n"), "metrics: ");
  expect_trouble(sends("a 1\n"), "metrics: ");
  expect_trouble(sends(""), "metrics: ");
}

Test(scraper, after_a_failure_the_last_figure_ages, .timeout = 60) {
  std::atomic<int> asked = 0;
  const Program program([&](int socket) {
    return send_text(socket, http(++asked == 1 ? "200 OK" : "503 Busy", "a 1\n"));
  });
  const auto scraper = start(program);
  MemberNotes notes;
  ScrapeNotes scrapes;
  const auto began = std::chrono::steady_clock::now();
  while (asked < 3 && std::chrono::steady_clock::now() < began + 20s) {
    await(*scraper);
    if (const auto scrape = scraper->take_scrape()) scrapes.take(*scrape, notes);
  }
  cr_assert_geq(asked, 3);
  cr_assert(notes.metrics.contains("a"));
  cr_expect(notes.metrics.at("a").at < began + 1s);
}

Test(scraper, a_program_that_hangs_keeps_nobody_waiting, .timeout = 60) {
  expect_trouble([](int) { return usleep(10'000) == 0; }, "metrics: ");
  const Program program([](int) { return usleep(10'000) == 0; });
  auto scraper = start(program);
  usleep(200'000);
  const auto began = std::chrono::steady_clock::now();
  cr_expect_not(scraper->take_scrape().has_value());
  scraper.reset();
  cr_expect(std::chrono::steady_clock::now() < began + 1s, "it ends without an answer");
}

Test(scraper, an_answer_without_end_is_given_up, .timeout = 60) {
  const std::string block(64 << 10, '\n');
  bool begun = false;
  const auto fast = [&](int socket) {
    if (!begun) send_text(socket, "HTTP/1.1 200 OK\r\n\r\na 1\n");
    begun = true;
    pollfd poll{socket, POLLOUT, 0};
    ::poll(&poll, 1, 20);
    const ssize_t sent = send(socket, block.data(), block.size(), MSG_NOSIGNAL);
    return sent >= 0 || errno == EAGAIN;
  };
  expect_trouble(fast, "more than 4194304 bytes");
  const auto slow = [](int socket) {
    usleep(10'000);
    return send(socket, "X", 1, MSG_NOSIGNAL) > 0;
  };
  expect_trouble(slow, "metrics: ");
}

Test(scraper, only_programs_of_this_node_are_asked) {
  for (const char* url :
       {"http://127.0.0.1:8000/metrics", "http://localhost:1/", "http://[::1]:9/m"})
    cr_expect_eq(scrape_url_complaint(url), "", "%s", url);
  for (const char* url :
       {"", "metrics", "127.0.0.1:8000", "https://127.0.0.1/", "file:///etc/passwd",
        "http://10.0.0.1/", "http://127.0.0.1.example.org/", "http://a@127.0.0.1/",
        "http://a:b@localhost/", "http://127.0.0.1@example.org/", "http://"})
    cr_expect_neq(scrape_url_complaint(url), "", "%s", url);
}
