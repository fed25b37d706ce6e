// What an event costs a decode-worker's core while it holds many sequences, in events a second: a
// renewal of a lease, a tick, and a step of 64 tokens. The core alone, without shell and engine.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "scheduler/worker/decode/decode_core.h"

namespace {

using namespace skein::scheduler;

constexpr int64_t kPromptTokens = 16;
constexpr int64_t kOutputTokens = 60'000'000;
constexpr auto kRowTime = std::chrono::milliseconds(300);

HandoffShape Shape() {
  return {{.num_layers = 2,
           .kv_heads = 1,
           .head_dim = 4,
           .block_tokens = 1 << 30,  // one block for each sequence
           .dtype = skein::DType::kF32},
          "h"};
}

DecodeConfig Config(int64_t sequences) {
  DecodeConfig config;
  config.membership.identity.role = Role::kDecode;
  config.membership.identity.shape = Shape();
  config.membership.identity.total_blocks = sequences;
  config.max_requests = sequences;
  config.lease_us = 1'000'000 * kSecondUs;
  config.attach_lease_us = 1'000'000 * kSecondUs;
  return config;
}

// A core that is connected to no orchestrator, so that no report is part of what is measured.
class Worker {
 public:
  Worker(int64_t sequences, bool running) : sequences_(sequences), core_(Config(sequences)) {
    Do(Tick{});
    for (int64_t i = 0; i < sequences; ++i) Begin(Id(i), running);
  }

  void Renew() { Do(RenewCalled{{++calls_}, {Id(next_++ % sequences_), {5}, {1}}}); }
  void Touch() { Do(Tick{}); }
  void Step() {
    const RunStep step = std::move(steps_.front());  // one more waits behind it
    steps_.pop_front();
    const std::vector<StepResult> results(step.sequences.size(), {7, "token", ""});
    Do(StepDone{step.step, {}, results});
  }

 private:
  static RequestId Id(int64_t serial) { return {7, static_cast<uint64_t>(serial)}; }

  void Begin(RequestId id, bool running) {
    auto spec = std::make_shared<RequestSpec>();
    spec->id = id;
    spec->prompt.assign(kPromptTokens, 1);
    spec->max_tokens = kOutputTokens;
    Do(AnnounceCalled{{spec, {5}, {{2}}}});
    Do(OpenTransferCalled{{++calls_}, {id, {5}, {1}, {2}, Shape()}});
    if (!running) return;
    Do(AttachCalled{{++calls_}, id, {5}});
    const int64_t bytes = HandoffBytesPerLayer(Shape(), kPromptTokens);
    Do(CommitCalled{{++calls_},
                    {.id = id, .epoch = {5}, .bytes_per_layer = {bytes, bytes}, .prefill = {1}}});
  }

  void Do(const DecodeEvent& event) {
    now_ += 1;
    for (DecodeEffect& effect : core_.Handle(event, now_)) {
      if (RunStep* step = std::get_if<RunStep>(&effect)) steps_.push_back(std::move(*step));
    }
  }

  const int64_t sequences_;
  DecodeCore core_;
  TimeUs now_ = 0;
  uint64_t calls_ = 0;
  int64_t next_ = 0;
  std::deque<RunStep> steps_;
};

double PerSecond(const std::function<void()>& event) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  int64_t count = 0;
  while (Clock::now() - start < kRowTime) {
    event();
    ++count;
  }
  return static_cast<double>(count) / std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

int main() {
  std::printf("%10s %14s %14s %14s\n", "sequences", "renewals/s", "ticks/s", "steps of 64/s");
  for (const int64_t sequences : {100, 1'000, 10'000}) {
    Worker granted(sequences, /*running=*/false);
    Worker running(sequences, /*running=*/true);
    const double renewals = PerSecond([&] { granted.Renew(); });
    const double ticks = PerSecond([&] { granted.Touch(); });
    const double steps = PerSecond([&] { running.Step(); });
    std::printf("%10lld %14.0f %14.0f %14.0f\n", static_cast<long long>(sequences), renewals, ticks,
                steps);
  }
}
