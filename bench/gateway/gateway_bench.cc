// What router and orchestrator add to calling the workers, and how many streams they carry.
//
// bench/gateway/run starts this beside a cluster: it serves the orchestrator's interface to a
// second pair of workers (direct_cluster.h), measures both in turn, prints one line of JSON and
// stays until its standard input ends, so that those workers can leave in order.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "bench/gateway/direct_cluster.h"
#include "bench/gateway/load.h"
#include "bench/gateway/process_cpu.h"
#include "bench/gateway/sse_client.h"
#include "nlohmann/json.hpp"
#include "scheduler/vocabulary/check.h"

ABSL_FLAG(int, router_port, 0, "HTTP port of the router on loopback");
ABSL_FLAG(std::string, port_file, "", "file to write the port to that direct workers register at");
ABSL_FLAG(std::string, model, "", "served name of the model");
ABSL_FLAG(std::string, prompt, "Once upon a time there was a", "text of every prompt");
ABSL_FLAG(int, pairs, 2000, "single streams measured, each through both");
ABSL_FLAG(int, connections, 1000, "concurrent streams of the throughput run");
ABSL_FLAG(double, seconds, 8, "length of one throughput run");
ABSL_FLAG(int, rounds, 2, "throughput runs, each through both");
ABSL_FLAG(int, output_tokens, 8, "tokens of one stream of the throughput run");
ABSL_FLAG(
    int, held, 0,
    "only hold so many streams of --output_tokens at once, each once, with no direct workers");
ABSL_FLAG(std::vector<std::string>, pids, {}, "NAME=PID of processes whose CPU time is reported");

namespace skein::bench {
namespace {

using nlohmann::json;

json Quantiles(const Samples& samples, int64_t StreamTimes::*field) {
  std::vector<int64_t> values;
  for (const StreamTimes& stream : samples.streams) values.push_back(stream.*field);
  return {{"p50_us", Quantile(values, 0.5)}, {"p99_us", Quantile(values, 0.99)}};
}

json ToJson(const Samples& samples) {
  return {{"streams", samples.streams.size()},
          {"streams_per_s", static_cast<double>(samples.in_time) / samples.seconds},
          {"ttft", Quantiles(samples, &StreamTimes::ttft_us)},
          {"total", Quantiles(samples, &StreamTimes::total_us)},
          {"errors", samples.errors},
          {"first_error", samples.first_error}};
}

std::string BodyOf(int64_t output_tokens) {
  return json{{"model", absl::GetFlag(FLAGS_model)},
              {"prompt", absl::GetFlag(FLAGS_prompt)},
              {"stream", true},
              {"max_tokens", output_tokens},
              {"temperature", 0.0},
              {"ignore_eos", true}}
      .dump();
}

// The same work through both ways.
class Bench {
 public:
  Bench(SseClient* single, DirectCluster* direct) : single_(single), direct_(direct) {
    const json asked = {{"model", absl::GetFlag(FLAGS_model)},
                        {"prompt", absl::GetFlag(FLAGS_prompt)}};
    const json answer = json::parse(single_->Post("/tokenize", asked.dump()));
    prompt_ = answer.at("tokens").get<std::vector<int32_t>>();
  }

  size_t prompt_tokens() const { return prompt_.size(); }

  // One stream at a time, by turns, so that a noisy neighbour hits both alike.
  json Latency(int64_t output_tokens, int pairs) {
    const std::string body = BodyOf(output_tokens);
    const DirectLoad load{prompt_, output_tokens, 1};
    Samples http, direct;
    for (int i = 0; i < pairs; ++i) {
      http.Add(single_->Run(body, {.streams_max = 1}));
      direct.Add(direct_->Run(load, {.streams_max = 1}));
    }
    return {{"output_tokens", output_tokens},
            {"pairs", pairs},
            {"gateway", ToJson(http)},
            {"direct", ToJson(direct)}};
  }

  json Throughput() {
    const int connections = absl::GetFlag(FLAGS_connections);
    const Limit limit{.seconds_max = absl::GetFlag(FLAGS_seconds)};
    const std::string body = BodyOf(absl::GetFlag(FLAGS_output_tokens));
    const DirectLoad load{prompt_, absl::GetFlag(FLAGS_output_tokens), connections};
    SseClient many(absl::GetFlag(FLAGS_router_port), connections);
    many.Run(body, {.seconds_max = 1});  // warm
    direct_->Run(load, {.seconds_max = 1});
    Samples http, direct;
    std::vector<double> cpu_s(absl::GetFlag(FLAGS_pids).size());
    for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
      AddCpu(-1, &cpu_s);
      http.Add(many.Run(body, limit));
      AddCpu(1, &cpu_s);
      direct.Add(direct_->Run(load, limit));
    }
    return {{"connections", connections},
            {"output_tokens", load.output_tokens},
            {"gateway", ToJson(http)},
            {"direct", ToJson(direct)},
            {"cpu_us_per_stream", CpuJson(cpu_s, http)}};
  }

 private:
  static void AddCpu(double sign, std::vector<double>* seconds) {
    const std::vector<std::string> pids = absl::GetFlag(FLAGS_pids);
    for (size_t i = 0; i < pids.size(); ++i) {
      const std::vector<std::string> parts = absl::StrSplit(pids[i], '=');
      int64_t pid = 0;
      SKEIN_CHECK(parts.size() == 2 && absl::SimpleAtoi(parts[1], &pid));
      (*seconds)[i] += sign * CpuSeconds(pid);
    }
  }

  static json CpuJson(const std::vector<double>& seconds, const Samples& http) {
    json out = json::object();
    const std::vector<std::string> pids = absl::GetFlag(FLAGS_pids);
    const auto streams = static_cast<double>(std::max<size_t>(1, http.streams.size()));
    for (size_t i = 0; i < pids.size(); ++i) {
      out[pids[i].substr(0, pids[i].find('='))] = seconds[i] * 1e6 / streams;
    }
    return out;
  }

  SseClient* const single_;
  DirectCluster* const direct_;
  std::vector<int32_t> prompt_;
};

json Measure(DirectCluster* direct) {
  SseClient single(absl::GetFlag(FLAGS_router_port), 1);
  Bench bench(&single, direct);
  const int pairs = absl::GetFlag(FLAGS_pairs);
  bench.Latency(1, pairs / 10);  // warm
  json latency = json::array();
  for (const int64_t output_tokens : {1, 8}) latency.push_back(bench.Latency(output_tokens, pairs));
  return {{"prompt_tokens", bench.prompt_tokens()},
          {"latency", std::move(latency)},
          {"throughput", bench.Throughput()}};
}

// The pace at which the median stream got its tokens, after its first.
json Hold(int streams) {
  const int tokens = absl::GetFlag(FLAGS_output_tokens);
  SseClient client(absl::GetFlag(FLAGS_router_port), streams);
  const Samples samples = client.Run(BodyOf(tokens), {.streams_max = streams, .seconds_max = 3600});
  std::vector<int64_t> paces_us;
  for (const StreamTimes& stream : samples.streams) {
    paces_us.push_back((stream.total_us - stream.ttft_us) / std::max(1, tokens - 1));
  }
  const int64_t median_us = std::max<int64_t>(1, Quantile(paces_us, 0.5));
  return {{"streams", samples.streams.size()},
          {"tokens_per_s_of_a_stream", 1e6 / static_cast<double>(median_us)},
          {"errors", samples.errors},
          {"first_error", samples.first_error}};
}

int Main() {
  if (const int streams = absl::GetFlag(FLAGS_held); streams > 0) {
    std::cout << Hold(streams).dump() << std::endl;
    return 0;
  }
  auto direct = DirectCluster::Start();
  if (!direct.ok()) {
    std::cerr << direct.status() << "\n";
    return 1;
  }
  const std::string port_file = absl::GetFlag(FLAGS_port_file);
  std::ofstream(port_file + ".part") << (*direct)->port() << "\n";
  SKEIN_CHECK(std::rename((port_file + ".part").c_str(), port_file.c_str()) == 0);
  if (absl::Status status = (*direct)->AwaitWorkers(60); !status.ok()) {
    std::cerr << status << "\n";
    return 1;
  }
  std::cout << Measure(direct->get()).dump() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
  }
  return 0;
}

}  // namespace
}  // namespace skein::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return skein::bench::Main();
}
