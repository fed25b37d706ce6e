// What the messages of the handoff's handshake add to a prompt, beside Tetris's figures (section
// 7.4, "CDSP Handshake"). See README.md.
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "bench/comm/handshake_target.h"
#include "bench/comm/handshake_writer.h"
#include "scheduler/vocabulary/check.h"
#include "services/codec/codec.h"
#include "services/rpc/rpc.h"

// Llama-3-8B's KV by default.
ABSL_FLAG(int, layers, 32, "layers of the model");
ABSL_FLAG(int, kv_heads, 8, "KV heads of the model");
ABSL_FLAG(int, head_dim, 128, "elements of a head");
ABSL_FLAG(int, block_tokens, 16, "tokens of a block");
ABSL_FLAG(int, prompt_tokens, 1024, "a multiple of block_tokens");
ABSL_FLAG(int, prefill_ms, 100, "how long the prompt computes");
ABSL_FLAG(int, slots, 64, "blocks that a staging buffer holds");
ABSL_FLAG(int, rounds, 11, "how many to measure; medians are printed");

namespace skein::bench {
namespace {

constexpr int kWriters[] = {1, 2, 4};

HandshakeShape ShapeOfFlags() {
  HandshakeShape shape;
  shape.kv = {{.num_layers = absl::GetFlag(FLAGS_layers),
               .kv_heads = absl::GetFlag(FLAGS_kv_heads),
               .head_dim = absl::GetFlag(FLAGS_head_dim),
               .block_tokens = absl::GetFlag(FLAGS_block_tokens),
               .dtype = engine::DType::kBF16},
              absl::GetFlag(FLAGS_prompt_tokens) / absl::GetFlag(FLAGS_block_tokens)};
  shape.slots = absl::GetFlag(FLAGS_slots);
  return shape;
}

double Median(std::vector<double> values) {
  SKEIN_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Check(const grpc::Status& status) {
  SKEIN_CHECK_MSG(status.ok(), status.error_message().c_str());
}

// Times of one prompt, from the start of its prefill.
struct Cost {
  double ms = 0;
  double cpu_ms = 0;  // of both processes; unlike the clock it tells something on a busy machine
};

double CpuMillis(clockid_t clock) {
  timespec time{};
  SKEIN_CHECK(clock_gettime(clock, &time) == 0);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

class Bench {
 public:
  Bench(const HandshakeShape& shape, pid_t target, const std::string& endpoint)
      : shape_(shape), channel_(channels_.Get(endpoint)), staging_(Staging::NewStub(channel_)) {
    SKEIN_CHECK(clock_getcpuclockid(target, &target_clock_) == 0);
    for (int i = 0; i < shape.writers_max; ++i) {
      writers_.push_back(std::make_unique<HandshakeWriter>(shape, channel_, i));
    }
  }

  Cost Measure(HandshakeMode mode, int writers, int buffers, Clock::duration prefill) {
    const HandshakeJob job = {++serial_, mode, writers, prefill};
    if (mode == HandshakeMode::kStaged) {
      Open(buffers);
    } else {
      Reserve();
    }
    for (int i = 0; i < writers; ++i) writers_[i]->Prepare(job);
    if (mode == HandshakeMode::kNone) renews_us_.push_back(writers_[0]->RenewUs());
    const double cpu_start = CpuMillisOfBoth();
    const auto start = Clock::now() + std::chrono::milliseconds(5);
    std::vector<Clock::time_point> ends(static_cast<size_t>(writers));
    std::vector<std::thread> threads;
    for (int i = 0; i < writers; ++i) {
      threads.emplace_back([&, i] { ends[i] = writers_[i]->Run(start); });
    }
    for (std::thread& thread : threads) thread.join();
    const double cpu_ms = CpuMillisOfBoth() - cpu_start;
    for (int i = 0; i < writers; ++i) writers_[i]->Conclude();
    const auto end = *std::max_element(ends.begin(), ends.end());
    return {std::chrono::duration<double, std::milli>(end - start).count(), cpu_ms};
  }

  void PrintRoundTrips() const {
    std::vector<double> opens, commits;
    for (const auto& writer : writers_) {
      opens.insert(opens.end(), writer->opens_us().begin(), writer->opens_us().end());
      commits.insert(commits.end(), writer->commits_us().begin(), writer->commits_us().end());
    }
    std::printf("round trips: OpenTransfer %.0f us, Renew %.0f us (one a second), Commit %.0f us\n",
                Median(opens), Median(renews_us_), Median(commits));
  }

 private:
  double CpuMillisOfBoth() const {
    return CpuMillis(CLOCK_PROCESS_CPUTIME_ID) + CpuMillis(target_clock_);
  }

  void Reserve() {
    scheduler::RequestSpec spec;
    spec.id = {1, serial_};
    spec.model = "m";
    spec.prompt.assign(static_cast<size_t>(shape_.kv.num_blocks * shape_.kv.block_tokens), 5);
    spec.max_tokens = 0;
    v1::SamplingParams sampling;
    sampling.set_top_p(1);
    sampling.set_repetition_penalty(1);
    spec.sampling = sampling.SerializeAsString();
    grpc::ClientContext context;
    ReserveOrder order;
    order.set_order(services::ToProto(scheduler::AnnounceOrder{services::Encode(spec), {1}, {{1}}})
                        .SerializeAsString());
    ReserveOrderTaken taken;
    Check(staging_->Reserve(&context, order, &taken));
  }

  void Open(int buffers) {
    OpenRequest request;
    request.set_request(serial_);
    request.set_buffers(static_cast<uint32_t>(buffers));
    request.set_blocks(static_cast<uint32_t>(shape_.kv.num_blocks));
    grpc::ClientContext context;
    OpenResponse response;
    Check(staging_->Open(&context, request, &response));
  }

  const HandshakeShape shape_;
  clockid_t target_clock_ = 0;
  services::Channels channels_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<Staging::Stub> staging_;
  std::vector<std::unique_ptr<HandshakeWriter>> writers_;
  std::vector<double> renews_us_;
  uint64_t serial_ = 0;
};

// Results for one number of writers and one prefill time; by round.
struct Series {
  std::vector<Cost> none, open, staged, halved;
};

double MedianMs(const std::vector<Cost>& costs) {
  std::vector<double> ms;
  for (const Cost& cost : costs) ms.push_back(cost.ms);
  return Median(ms);
}

// By how many percent more `with` takes.
std::string Excess(const std::vector<Cost>& with, const std::vector<Cost>& without,
                   double Cost::*what) {
  if (with.empty()) return "-";
  std::vector<double> excess;
  for (size_t i = 0; i < with.size(); ++i) {
    excess.push_back((with[i].*what / without[i].*what - 1) * 100);
  }
  char text[32];
  std::snprintf(text, sizeof text, "%+.1f %%", Median(excess));
  return text;
}

void MeasureRound(Bench* bench, int writers, Clock::duration prefill, Series* series) {
  const auto measure = [&](HandshakeMode mode, int buffers) {
    return bench->Measure(mode, writers, buffers, prefill);
  };
  series->none.push_back(measure(HandshakeMode::kNone, 0));
  series->open.push_back(measure(HandshakeMode::kOpenTransfer, 0));
  series->staged.push_back(measure(HandshakeMode::kStaged, writers));
  if (writers > 1) series->halved.push_back(measure(HandshakeMode::kStaged, writers / 2));
}

void Print(int writers, int prefill_ms, const Series& series) {
  const std::vector<Cost> prefill(prefill_ms > 0 ? series.open.size() : 0,
                                  Cost{static_cast<double>(prefill_ms), 0});
  const std::string all = prefill.empty() ? "-" : Excess(series.open, prefill, &Cost::ms);
  std::printf("| %d | %d | %.1f | %.1f | %s | %s | %s | %.1f | %s | %s |\n", writers, prefill_ms,
              MedianMs(series.none), MedianMs(series.open),
              Excess(series.open, series.none, &Cost::ms).c_str(),
              Excess(series.open, series.none, &Cost::cpu_ms).c_str(), all.c_str(),
              MedianMs(series.staged), Excess(series.halved, series.staged, &Cost::ms).c_str(),
              Excess(series.halved, series.staged, &Cost::cpu_ms).c_str());
}

void Run(const HandshakeShape& shape, pid_t target, const std::string& endpoint) {
  Bench bench(shape, target, endpoint);
  const int prefills_ms[] = {0, absl::GetFlag(FLAGS_prefill_ms)};
  std::map<std::tuple<int, int>, Series> series;
  for (int round = -1; round < absl::GetFlag(FLAGS_rounds); ++round) {
    for (const int prefill_ms : prefills_ms) {
      for (const int writers : kWriters) {
        Series warm_up;  // the first round connects
        MeasureRound(&bench, writers, std::chrono::milliseconds(prefill_ms),
                     round < 0 ? &warm_up : &series[{prefill_ms, writers}]);
      }
    }
  }
  std::printf(
      "%.0f MiB of KV, medians of %d rounds\n\n",
      static_cast<double>(shape.kv.num_blocks * shape.kv.num_layers * shape.kv.BlockBytes()) /
          (1 << 20),
      absl::GetFlag(FLAGS_rounds));
  std::printf(
      "| writers | prefill ms | put ms | with its messages ms | the messages add | in CPU time | "
      "all, beside the prefill (paper: 2.1 %% mean) | staged ms | "
      "half the buffers (paper: 3.8 %% mean) | in CPU time |\n"
      "|---|---|---|---|---|---|---|---|---|---|\n");
  for (const auto& [key, values] : series) Print(std::get<1>(key), std::get<0>(key), values);
  bench.PrintRoundTrips();
}

}  // namespace
}  // namespace skein::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const skein::bench::HandshakeShape shape = skein::bench::ShapeOfFlags();
  int fds[2];
  SKEIN_CHECK(pipe(fds) == 0);
  const pid_t target = fork();  // before UCX and gRPC start in either
  if (target == 0) skein::bench::RunHandshakeTarget(shape, fds[1]);
  int port = 0;
  SKEIN_CHECK(read(fds[0], &port, sizeof port) == sizeof port);
  skein::bench::Run(shape, target, absl::StrCat("127.0.0.1:", port));
  kill(target, SIGKILL);
  waitpid(target, nullptr, 0);
}
