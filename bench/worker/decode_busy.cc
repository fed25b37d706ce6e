// How busy a decode-worker keeps its device: a whole worker (shell, core, gRPC) on an emulated
// device whose steps take a given time, with so many sequences, and a router's stub that drains
// their tokens on one stream.
//
//   decode_busy [--sequences=256] [--step_us=5000] [--seconds=10] [--rounds=3]
//
// By turns without and with steps launched ahead. Busy: steps times their time, of the time that
// passed between the first token and the last that were counted.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "scheduler/vocabulary/check.h"
#include "services/worker/testing/emulated_decode_worker.h"

ABSL_FLAG(int, sequences, 256, "sequences that decode");
ABSL_FLAG(int, step_us, 5000, "time of a step of the emulated device");
ABSL_FLAG(double, seconds, 10, "of each measurement");
ABSL_FLAG(int, rounds, 3, "measurements of each kind; the median is told");

namespace skein::services {
namespace {

using Clock = std::chrono::steady_clock;

// Tags of two words a token, of which a digest folds 64 tokens at most: what they cost is hidden in
// the step's time however long the sequences are.
WorkerEngine Engine(int sequences) {
  engine::EmulatedOptions options;
  options.max_positions = 1 << 20;
  options.digest_tokens = 64;
  options.kv = {{.num_layers = 1, .kv_heads = 1, .head_dim = 2, .dtype = engine::DType::kF32},
                sequences * 512};
  options.times.decode.step_s = absl::GetFlag(FLAGS_step_us) * 1e-6;
  return testing::EmulatedWorker(options);
}

scheduler::DecodeConfig Config(int sequences, bool launch_ahead) {
  scheduler::DecodeConfig config;
  config.max_requests = sequences;
  config.batch.max_batch_sequences = sequences;
  config.launch_ahead = launch_ahead;
  return config;
}

// The share of the time in which the device worked.
double Busy(bool launch_ahead) {
  const int sequences = absl::GetFlag(FLAGS_sequences);
  testing::EmulatedDecodeWorker worker(Engine(sequences), Config(sequences, launch_ahead), 4096);
  grpc::ClientContext context;
  const auto stream = worker.stub()->StreamTokens(&context);
  for (int i = 0; i < sequences; ++i) worker.Run(static_cast<uint64_t>(i + 1), 1 << 18);
  v1::TokenStreamRequest attach;
  for (int i = 0; i < sequences; ++i) {
    auto* one = attach.add_attach();
    one->mutable_id()->set_router(1);
    one->mutable_id()->set_serial(static_cast<uint64_t>(i + 1));
    one->set_epoch(1);
    one->set_credit(1 << 20);
  }
  SKEIN_CHECK(stream->Write(attach));
  v1::TokenBatch batch;
  int64_t tokens = 0;
  const auto read_until = [&](Clock::time_point end) {
    while (Clock::now() < end) {
      SKEIN_CHECK(stream->Read(&batch));
      for (const auto& sequence : batch.sequences()) {
        SKEIN_CHECK(!sequence.has_finished());
        tokens += sequence.tokens_size();
      }
    }
  };
  read_until(Clock::now() + std::chrono::seconds(1));  // what waited, and the start
  const auto begin = Clock::now();
  tokens = 0;
  read_until(begin +
             std::chrono::microseconds(static_cast<int64_t>(absl::GetFlag(FLAGS_seconds) * 1e6)));
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  context.TryCancel();
  while (stream->Read(&batch)) {
  }
  stream->Finish();
  const double steps = static_cast<double>(tokens) / sequences;
  return steps * absl::GetFlag(FLAGS_step_us) * 1e-6 / seconds;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Measure() {
  std::vector<double> without, with;
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    without.push_back(Busy(false));
    with.push_back(Busy(true));
    std::printf("device busy: %.2f %% one step at a time, %.2f %% launched ahead\n",
                100 * without.back(), 100 * with.back());
  }
  std::printf("median:      %.2f %% one step at a time, %.2f %% launched ahead\n",
              100 * Median(without), 100 * Median(with));
}

}  // namespace
}  // namespace skein::services

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  skein::services::Measure();
}
