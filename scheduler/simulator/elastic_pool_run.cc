#include "scheduler/simulator/elastic_pool_run.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <queue>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

int64_t DividedUp(int64_t value, int64_t by) { return (value + by - 1) / by; }

int64_t TokensOf(const SimRequest& request) {
  return request.prompt_tokens + request.output_tokens;
}

// Sequences in decode on `instances_` instances, evenly spread; all step together.
class DecodeSide {
 public:
  DecodeSide(const ElasticPoolOptions& options, DecodeRun* run) : options_(options), run_(run) {}

  int64_t InstancesNeeded() const {
    return std::max(DividedUp(reserved_tokens_, options_.kv_tokens),
                    DividedUp(static_cast<int64_t>(ends_.size()), options_.sequences_max));
  }
  void SetInstances(int64_t instances) { instances_ = instances; }

  // The steps between the last call and now, in which nothing joined or left.
  void AdvanceTo(double now_s) {
    const double span_s = now_s - now_s_;
    now_s_ = now_s;
    if (ends_.empty()) return;
    const double step_s = StepSeconds();
    const double steps = span_s / step_s;
    done_steps_ += steps;
    run_->busy_instance_s += span_s * static_cast<double>(instances_);
    owed_tokens_ += steps * static_cast<double>(ends_.size());
    const auto tokens = static_cast<int64_t>(owed_tokens_);
    owed_tokens_ -= static_cast<double>(tokens);
    if (tokens > 0) run_->tbt.Add(step_s, tokens);
  }

  void Join(const SimRequest& request) {
    reserved_tokens_ += TokensOf(request);
    const auto steps = static_cast<double>(request.output_tokens - 1);
    ends_.emplace(done_steps_ + steps, TokensOf(request));
  }
  double NextEnd() const {
    if (ends_.empty()) return kInfinity;
    return now_s_ + std::max(0.0, ends_.top().first - done_steps_) * StepSeconds();
  }
  // The next to end has all its tokens.
  void End() {
    done_steps_ = std::max(done_steps_, ends_.top().first);
    reserved_tokens_ -= ends_.top().second;
    ends_.pop();
    ++run_->finished;
    run_->end_s = std::max(run_->end_s, now_s_);
  }

 private:
  using ByEnd = std::pair<double, int64_t>;  // step of the last token, tokens reserved

  double StepSeconds() const {
    const auto each = static_cast<double>(std::max<int64_t>(1, instances_));
    return options_.step_base_s +
           (options_.step_per_sequence_s * static_cast<double>(ends_.size()) +
            options_.step_per_kv_token_s * static_cast<double>(reserved_tokens_)) /
               each;
  }

  const ElasticPoolOptions& options_;
  DecodeRun* run_;
  double now_s_ = 0;
  double done_steps_ = 0;
  double owed_tokens_ = 0;  // less than one: of steps in progress
  int64_t instances_ = 0;
  int64_t reserved_tokens_ = 0;
  std::priority_queue<ByEnd, std::vector<ByEnd>, std::greater<>> ends_;
};

class ElasticPool {
 public:
  ElasticPool(const std::vector<SimRequest>& requests, const LatencyModel& model,
              const ElasticPoolOptions& options, const ChunkObserver& observer)
      : requests_(requests),
        model_(model.Within({.pinned_tp = 1})),
        options_(options),
        observer_(observer),
        decode_(options, &run_.decode) {
    run_.prefill.outcomes.resize(requests.size());
    for (int i = 0; i < options.instances; ++i) free_.insert(i);
  }

  ElasticPoolRun Run() {
    while (true) {
      const double arrival_s = next_ < requests_.size() ? requests_[next_].arrival_s : kInfinity;
      const double prefilled_s = running_.empty() ? kInfinity : running_.top().end_s;
      const double decoded_s = decode_.NextEnd();
      const double now_s = std::min({arrival_s, prefilled_s, decoded_s});
      if (now_s == kInfinity) break;
      decode_.AdvanceTo(now_s);
      if (decoded_s <= now_s) {
        decode_.End();
      } else if (prefilled_s <= now_s) {
        EndPrefill();
      } else {
        waiting_.push_back(next_++);
      }
      SetDecodeInstances();
      while (!waiting_.empty() && Start(waiting_.front(), now_s)) waiting_.pop_front();
    }
    SKEIN_CHECK(waiting_.empty());
    return std::move(run_);
  }

 private:
  struct Running {
    double end_s;
    size_t request;
    std::vector<int> instances;
    bool operator>(const Running& other) const { return end_s > other.end_s; }
  };

  // The lowest-numbered free instances begin to decode, and the last to begin stop first.
  void SetDecodeInstances() {
    const auto needed = static_cast<size_t>(decode_.InstancesNeeded());
    while (decoding_.size() > needed) {
      free_.insert(decoding_.back());
      decoding_.pop_back();
    }
    while (decoding_.size() < needed && !free_.empty()) {
      decoding_.push_back(*free_.begin());
      free_.erase(free_.begin());
    }
    decode_.SetInstances(static_cast<int64_t>(decoding_.size()));
  }

  // As many free instances as make the prompt fastest, if they hold its KV.
  bool Start(size_t request, double now_s) {
    const SimRequest& of = requests_[request];
    const auto needed = static_cast<size_t>(DividedUp(TokensOf(of), options_.kv_tokens));
    int best_sp = 0;
    double best_s = kInfinity;
    for (const int sp : model_.sp_sizes()) {
      const auto size = static_cast<size_t>(sp);
      if (size > free_.size()) break;
      if (size < needed) continue;
      const double seconds = model_.Seconds(sp, 0, of.prompt_tokens);
      if (seconds >= best_s) continue;
      best_sp = sp;
      best_s = seconds;
    }
    if (best_sp == 0) return false;
    Running running{now_s + best_s, request, {}};
    for (int i = 0; i < best_sp; ++i) {
      running.instances.push_back(*free_.begin());
      free_.erase(free_.begin());
    }
    PrefillRun& prefill = run_.prefill;
    prefill.outcomes[request] = {now_s, running.end_s};
    prefill.busy_instance_s += best_sp * best_s;
    prefill.end_s = std::max(prefill.end_s, running.end_s);
    ++prefill.chunks;
    ++prefill.shapes[{best_sp, 1}];
    if (observer_) {
      observer_(request, {of.prompt_tokens, running.instances, now_s, running.end_s});
    }
    running_.push(std::move(running));
    return true;
  }

  void EndPrefill() {
    const Running& ended = running_.top();
    free_.insert(ended.instances.begin(), ended.instances.end());
    const SimRequest& request = requests_[ended.request];
    run_.decode.end_s = std::max(run_.decode.end_s, ended.end_s);
    if (request.output_tokens > 1) {
      decode_.Join(request);
    } else {
      ++run_.decode.finished;
    }
    running_.pop();
  }

  const std::vector<SimRequest>& requests_;
  const LatencyModel model_;  // LoongServe has no tensor groups of instances
  const ElasticPoolOptions& options_;
  const ChunkObserver& observer_;
  ElasticPoolRun run_;
  DecodeSide decode_;
  size_t next_ = 0;  // to arrive
  std::deque<size_t> waiting_;
  std::priority_queue<Running, std::vector<Running>, std::greater<>> running_;
  std::set<int> free_;
  std::vector<int> decoding_;
};

}  // namespace

ElasticPoolOptions ElasticPoolOptions::Of(int prefill_instances, const DecodeOptions& decode) {
  const int share = decode.prefill_instances;
  return {.instances = 2 * prefill_instances,
          .kv_tokens = decode.blocks * decode.block_tokens / share,
          .step_base_s = decode.step_base_s + (share - 1) * decode.step_weights_s,
          .step_per_sequence_s = decode.step_per_sequence_s,
          .step_per_kv_token_s = decode.step_per_kv_token_s * share};
}

absl::Status CheckElasticPool(const ElasticPoolOptions& options, const LatencyModel& model,
                              const std::vector<SimRequest>& requests) {
  const std::pair<const char*, double> positive[] = {
      {"instances", options.instances},
      {"kv_tokens", static_cast<double>(options.kv_tokens)},
      {"sequences_max", static_cast<double>(options.sequences_max)},
      {"step_base_s", options.step_base_s}};
  for (const auto& [field, value] : positive) {
    if (value > 0 && std::isfinite(value)) continue;
    return absl::InvalidArgumentError(absl::StrFormat("%s is %g, not positive", field, value));
  }
  int64_t largest = 0;
  for (const int sp : model.sp_sizes()) {
    if (sp <= options.instances) largest = sp;
  }
  for (size_t r = 0; r < requests.size(); ++r) {
    if (DividedUp(TokensOf(requests[r]), options.kv_tokens) <= largest) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("request %d: %d tokens are more than %d instances hold", r,
                        TokensOf(requests[r]), largest));
  }
  return absl::OkStatus();
}

ElasticPoolRun RunElasticPool(const std::vector<SimRequest>& requests, const LatencyModel& model,
                              const ElasticPoolOptions& options, const ChunkObserver& observer) {
  return ElasticPool(requests, model, options, observer).Run();
}

}  // namespace skein::scheduler
