#include "scheduler/simulator/offline/offline_job.h"

#include <algorithm>
#include <deque>

#include "absl/strings/str_cat.h"
#include "scheduler/simulator/offline/rank_batch.h"

namespace skein::scheduler {
namespace {

double Double(int64_t value) { return static_cast<double>(value); }

WeightMemory MemoryOf(const OfflineProfile& profile, int64_t ranks, const OfflineJob& job) {
  return job.strategy == OfflineStrategy::kFull ? FullMemory(profile.step, ranks)
                                                : SharedMemory(profile.step, ranks, job.slots);
}

RankBatch::Limits LimitsOf(const OfflineProfile& profile, int64_t ranks, const OfflineJob& job,
                           const std::vector<OfflineRequest>& requests) {
  RankBatch::Limits limits;
  limits.kv_tokens = MemoryOf(profile, ranks, job).rank_kv_tokens;
  limits.step_tokens = job.step_tokens;
  limits.sequences = std::max<int64_t>(1, kFixedBatch / ranks);
  if (job.batching == Batching::kAdaptive) {
    double tokens = 0;
    for (const OfflineRequest& one : requests) tokens += Double(one.prompt + one.output);
    const double mean = tokens / Double(static_cast<int64_t>(requests.size()));
    limits.sequences = std::max<int64_t>(1, static_cast<int64_t>(Double(limits.kv_tokens) / mean));
  }
  return limits;
}

class Run {
 public:
  Run(SharedSteps* steps, const OfflineJob& job, const std::vector<OfflineRequest>& requests)
      : steps_(steps), job_(job), waiting_(requests.begin(), requests.end()) {
    const RankBatch::Limits limits = LimitsOf(steps->profile(), steps->ranks(), job, requests);
    result_.rank_sequences = limits.sequences;
    ranks_.reserve(static_cast<size_t>(steps->ranks()));
    for (int64_t r = 0; r < steps->ranks(); ++r) ranks_.push_back({RankBatch(limits), 0});
    is_cas_ = job.strategy == OfflineStrategy::kCas;
  }

  OfflineJobResult Play() {
    while (HasWork()) {
      is_cas_ ? StepTogether() : StepAlone();
      if (job_.strategy == OfflineStrategy::kSwitched) Choose();
    }
    for (const Rank& rank : ranks_) {
      result_.seconds = std::max(result_.seconds, rank.at_s);
      result_.preempted += rank.batch.preempted();
    }
    result_.output_tokens_per_s = Double(output_) / result_.seconds;
    result_.mean_sequences = Double(sequences_) / Double(result_.steps);
    return result_;
  }

 private:
  struct Rank {
    RankBatch batch;
    double at_s = 0;  // the end of its last step
  };

  bool HasWork() const {
    return !waiting_.empty() || std::any_of(ranks_.begin(), ranks_.end(),
                                            [](const Rank& rank) { return !rank.batch.empty(); });
  }

  void Ended(Rank* rank, double at_s) {
    sequences_ += rank->batch.size();
    output_ += rank->batch.StepEnded(&waiting_);
    rank->at_s = at_s;
    now_s_ = std::max(now_s_, at_s);
    ++result_.steps;
    result_.cas_steps += is_cas_ ? 1 : 0;
  }

  // The rank that is free first and has work, or may take some.
  void StepAlone() {
    Rank* next = nullptr;
    for (Rank& rank : ranks_) {
      if (rank.batch.empty() && waiting_.empty()) continue;
      if (next == nullptr || rank.at_s < next->at_s) next = &rank;
    }
    next->batch.Admit(&waiting_);
    const StepWork work = next->batch.NextStep();
    const double step_s = job_.strategy == OfflineStrategy::kFull ? steps_->FullSeconds(work)
                                                                  : steps_->WasSeconds(work);
    Ended(next, next->at_s + step_s);
  }

  void StepTogether() {
    std::vector<StepWork> work;
    for (Rank& rank : ranks_) {
      // Evenly, as ranks that run alone take requests.
      rank.batch.Admit(&waiting_);
      work.push_back(rank.batch.NextStep());
    }
    double begin_s = 0;
    for (const Rank& rank : ranks_) begin_s = std::max(begin_s, rank.at_s);
    const double end_s = begin_s + steps_->CasSeconds(work);
    for (Rank& rank : ranks_) {
      if (rank.batch.empty()) continue;
      Ended(&rank, end_s);
    }
  }

  void Choose() {
    if (now_s_ - switched_s_ < job_.min_dwell_s) return;
    int64_t sequences = static_cast<int64_t>(waiting_.size());
    for (const Rank& rank : ranks_) sequences += rank.batch.size();
    const double mean = Double(sequences) / Double(steps_->ranks());
    const double edge = 1 + (is_cas_ ? job_.hysteresis : -job_.hysteresis);
    const bool wants_cas = waiting_.empty() && mean < Double(job_.threshold) * edge;
    if (wants_cas == is_cas_) return;
    is_cas_ = wants_cas;
    switched_s_ = now_s_;
    ++result_.switches;
  }

  SharedSteps* const steps_;
  const OfflineJob job_;
  std::deque<OfflineRequest> waiting_;
  std::vector<Rank> ranks_;
  bool is_cas_ = false;
  double now_s_ = 0;
  double switched_s_ = -1e18;
  int64_t output_ = 0;
  int64_t sequences_ = 0;
  OfflineJobResult result_;
};

}  // namespace

absl::Status CheckOfflineJob(const OfflineProfile& profile, int64_t ranks, const OfflineJob& job,
                             const std::vector<OfflineRequest>& requests) {
  const int64_t kv_tokens = MemoryOf(profile, ranks, job).rank_kv_tokens;
  if (kv_tokens == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("usable_bytes: ", profile.step.peaks.usable_bytes, " of each of ",
                     profile.step.base_devices, " devices do not hold an instance's weights"));
  }
  for (const OfflineRequest& one : requests) {
    if (one.prompt + one.output <= kv_tokens) continue;
    return absl::InvalidArgumentError(absl::StrCat("a request has ", one.prompt + one.output,
                                                   " tokens, but an instance's KV only ",
                                                   kv_tokens));
  }
  return absl::OkStatus();
}

OfflineJobResult RunOfflineJob(SharedSteps* steps, const OfflineJob& job,
                               const std::vector<OfflineRequest>& requests) {
  return Run(steps, job, requests).Play();
}

}  // namespace skein::scheduler
