#include "scheduler/simulator/decode_run.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <queue>

#include "absl/strings/str_format.h"
#include "scheduler/placement/freeness.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Sequence {
  int64_t last_step = 0;  // the instance's step that gives the last token
  int64_t kv_tokens = 0;  // at its end
  int64_t blocks = 0;
};

bool EndsLater(const Sequence& a, const Sequence& b) { return a.last_step > b.last_step; }

class Instance {
 public:
  Instance(const DecodeOptions& options, DecodeRun* run) : options_(options), run_(run) {
    free_blocks_ = options.blocks;
  }

  int64_t free_blocks() const { return free_blocks_; }
  int64_t active() const { return joining_ + static_cast<int64_t>(batch_.size()); }

  void Reserve(int64_t blocks) {
    free_blocks_ -= blocks;
    ++joining_;
  }

  // Takes every step that ends by `now_s`.
  void AdvanceTo(double now_s) {
    while (!batch_.empty()) {
      const int64_t steps = std::min(batch_.front().last_step - step_, StepsUntil(now_s));
      if (steps == 0) return;
      Take(steps);
    }
  }

  // A reserved request whose prefill ended at `ready_s` <= now_s needs `steps` > 0 more tokens.
  void Join(double now_s, double ready_s, int64_t steps, int64_t prompt_tokens, int64_t blocks) {
    --joining_;
    if (batch_.empty()) {
      boundary_s_ = std::max(boundary_s_, now_s);
    } else if (boundary_s_ < now_s) {
      Take(1);  // not part of the current step
    }
    // That may have been the batch's last step.
    fresh_waits_s_.push_back(boundary_s_ - ready_s);
    kv_tokens_ += prompt_tokens;
    batch_.push_back({step_ + steps, prompt_tokens + steps, blocks});
    std::push_heap(batch_.begin(), batch_.end(), EndsLater);
  }

  void Leave(int64_t blocks) {  // a reserved request that needs no more tokens
    --joining_;
    free_blocks_ += blocks;
  }

  // When the next sequence ends if none joins.
  double NextEnd() const {
    return batch_.empty() ? kInfinity : boundary_s_ + Seconds(batch_.front().last_step - step_);
  }

 private:
  double FirstStep() const {
    return options_.step_base_s +
           options_.step_per_sequence_s * static_cast<double>(batch_.size()) +
           options_.step_per_kv_token_s * static_cast<double>(kv_tokens_);
  }
  double Growth() const {
    return options_.step_per_kv_token_s * static_cast<double>(batch_.size());
  }
  double Seconds(int64_t steps) const {
    const auto k = static_cast<double>(steps);
    return k * FirstStep() + Growth() * k * (k - 1) / 2;
  }

  // Steps that end by `now_s`, but not beyond the first end of a sequence.
  int64_t StepsUntil(double now_s) const {
    int64_t low = 0;
    int64_t high = batch_.front().last_step - step_;
    if (boundary_s_ + Seconds(high) <= now_s) return high;
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (boundary_s_ + Seconds(middle) <= now_s ? low : high) = middle;
    }
    return low;
  }

  // REQUIRES no sequence ends before the last of `steps` > 0 steps.
  void Take(int64_t steps) {
    if (!fresh_waits_s_.empty() && steps > 1) {
      Take(1);
      --steps;
    }
    const double first_s = FirstStep();
    const double seconds = Seconds(steps);
    for (const double wait_s : fresh_waits_s_) run_->tbt.Add(first_s + wait_s, 1);
    const auto known = static_cast<int64_t>(batch_.size() - fresh_waits_s_.size());
    if (known > 0) run_->tbt.AddRising(first_s, Growth(), steps, known);
    fresh_waits_s_.clear();
    boundary_s_ += seconds;
    run_->busy_instance_s += seconds;
    kv_tokens_ += steps * static_cast<int64_t>(batch_.size());
    step_ += steps;
    while (!batch_.empty() && batch_.front().last_step == step_) {
      free_blocks_ += batch_.front().blocks;
      kv_tokens_ -= batch_.front().kv_tokens;
      std::pop_heap(batch_.begin(), batch_.end(), EndsLater);
      batch_.pop_back();
      ++run_->finished;
      run_->end_s = std::max(run_->end_s, boundary_s_);
    }
  }

  const DecodeOptions& options_;
  DecodeRun* run_;
  double boundary_s_ = 0;  // the last step ended here
  int64_t step_ = 0;
  int64_t kv_tokens_ = 0;
  int64_t free_blocks_ = 0;
  int64_t joining_ = 0;          // placed, prefill in progress
  std::vector<Sequence> batch_;  // a heap, the first to end in front
  std::vector<double> fresh_waits_s_;
};

struct Event {
  double at_s;
  bool prefilled;  // false: prefill starts
  size_t request;
};

class Pool {
 public:
  Pool(const std::vector<SimRequest>& requests, const std::vector<PrefillOutcome>& outcomes,
       const DecodeOptions& options)
      : requests_(requests), outcomes_(outcomes), options_(options), placed_(requests.size(), -1) {
    for (int i = 0; i < options.instances; ++i) instances_.emplace_back(options, &run_);
    candidates_.resize(instances_.size());
  }

  DecodeRun Run() {
    for (const Event& event : Events()) {
      WakeUntil(event.at_s);
      for (Instance& instance : instances_) instance.AdvanceTo(event.at_s);
      if (!event.prefilled) {
        if (!waiting_.empty() || !Place(event.request)) waiting_.push_back(event.request);
      } else if (placed_[event.request] >= 0) {
        Admit(event.request, event.at_s);
        PlaceWaiting(event.at_s);  // it may have needed no more tokens
      }
    }
    WakeUntil(kInfinity);
    for (Instance& instance : instances_) instance.AdvanceTo(kInfinity);
    SKEIN_CHECK(waiting_.empty());
    return std::move(run_);
  }

 private:
  std::vector<Event> Events() const {
    std::vector<Event> events;
    events.reserve(2 * requests_.size());
    for (size_t r = 0; r < requests_.size(); ++r) {
      events.push_back({outcomes_[r].start_s, false, r});
      events.push_back({outcomes_[r].end_s, true, r});
    }
    std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
      if (a.at_s != b.at_s) return a.at_s < b.at_s;
      return a.request != b.request ? a.request < b.request : a.prefilled < b.prefilled;
    });
    return events;
  }

  int64_t BlocksOf(const SimRequest& request) const {
    const int64_t tokens = request.prompt_tokens + request.output_tokens;
    return (tokens + options_.block_tokens - 1) / options_.block_tokens;
  }

  bool Place(size_t request) {
    const int64_t blocks = BlocksOf(requests_[request]);
    for (size_t i = 0; i < instances_.size(); ++i) {
      candidates_[i] = {{i + 1}, instances_[i].free_blocks(), 0, instances_[i].active(), 0};
    }
    const std::optional<InstanceId> pick = PickDecode(candidates_, blocks);
    if (!pick.has_value()) return false;
    placed_[request] = static_cast<int>(pick->value) - 1;
    instances_[pick->value - 1].Reserve(blocks);
    return true;
  }

  void Admit(size_t request, double now_s) {
    Instance& instance = instances_[static_cast<size_t>(placed_[request])];
    const SimRequest& of = requests_[request];
    const double ready_s = outcomes_[request].end_s;
    run_.blocked_s += now_s - ready_s;
    run_.end_s = std::max(run_.end_s, ready_s);
    if (of.output_tokens > 1) {
      instance.Join(now_s, ready_s, of.output_tokens - 1, of.prompt_tokens, BlocksOf(of));
    } else {
      instance.Leave(BlocksOf(of));
      ++run_.finished;
    }
  }

  // Places waiting requests as sequences end, up to `until_s`.
  void WakeUntil(double until_s) {
    while (!waiting_.empty()) {
      double next_s = kInfinity;
      for (const Instance& instance : instances_) next_s = std::min(next_s, instance.NextEnd());
      if (next_s > until_s || next_s == kInfinity) return;
      for (Instance& instance : instances_) instance.AdvanceTo(next_s);
      PlaceWaiting(next_s);
    }
  }

  void PlaceWaiting(double now_s) {
    while (!waiting_.empty() && Place(waiting_.front())) {
      const size_t request = waiting_.front();
      waiting_.pop_front();
      if (outcomes_[request].end_s <= now_s) Admit(request, now_s);
    }
  }

  const std::vector<SimRequest>& requests_;
  const std::vector<PrefillOutcome>& outcomes_;
  const DecodeOptions& options_;
  DecodeRun run_;
  std::vector<Instance> instances_;
  std::vector<DecodeCandidate> candidates_;
  std::vector<int> placed_;  // instance of each request, or -1
  std::deque<size_t> waiting_;
};

}  // namespace

absl::Status CheckDecode(const DecodeOptions& options, const std::vector<SimRequest>& requests) {
  if (options.instances <= 0) return absl::InvalidArgumentError("decode_instances: not positive");
  if (options.blocks <= 0) return absl::InvalidArgumentError("decode_blocks: not positive");
  if (options.block_tokens <= 0) return absl::InvalidArgumentError("block_tokens: not positive");
  if (options.prefill_instances <= 0) {
    return absl::InvalidArgumentError("prefill_instances: not positive");
  }
  for (const double seconds : {options.step_base_s, options.step_per_sequence_s,
                               options.step_per_kv_token_s, options.step_weights_s}) {
    if (!std::isfinite(seconds) || seconds < 0)
      return absl::InvalidArgumentError("decode step: negative or not finite");
  }
  if (options.step_base_s == 0)
    return absl::InvalidArgumentError("decode step base: must be positive");
  for (size_t r = 0; r < requests.size(); ++r) {
    const int64_t tokens = requests[r].prompt_tokens + requests[r].output_tokens;
    if ((tokens - 1) / options.block_tokens + 1 > options.blocks) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "request %d: %d tokens are more than a decode instance holds", r, tokens));
    }
  }
  return absl::OkStatus();
}

DecodeRun RunDecode(const std::vector<SimRequest>& requests,
                    const std::vector<PrefillOutcome>& outcomes, const DecodeOptions& options) {
  return Pool(requests, outcomes, options).Run();
}

}  // namespace skein::scheduler
