#include "scheduler/orchestrator/explain/explanation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace skein::scheduler {

const char* NameOf(Degraded kind) {
  constexpr const char* kNames[kDegradedKinds] = {"parked",
                                                  "replanned",
                                                  "recomputed",
                                                  "decode_retried",
                                                  "decode_full",
                                                  "decode_waited",
                                                  "handoff_host_memory",
                                                  "handoff_tcp",
                                                  "handoff_staging_buffer",
                                                  "handoff_retried",
                                                  "ring_host_memory",
                                                  "unclaimed",
                                                  "submitted_anew",
                                                  "resumed",
                                                  "moved",
                                                  "preempted"};
  return kNames[static_cast<size_t>(kind)];
}

bool Explanation::Answers(const std::string& request) const {
  return std::find(names.begin(), names.end(), request) != names.end() || ToString(id) == request;
}

void TellWhy(PlanExplanation* plan) {
  TellMeanings(plan);
  const auto percent = [](double fraction) { return absl::StrFormat("%.1f %%", 100 * fraction); };
  AlternativeExplanation* best = nullptr;
  for (AlternativeExplanation& one : plan->alternatives) {
    const double gain = best == nullptr ? 1 : 1 - one.ttft_s / best->ttft_s;
    if (gain <= 0) {
      one.why = absl::StrCat("not faster than SP ", best->sp);
    } else if (best != nullptr && gain <= plan->improvement_rate) {
      one.why = absl::StrCat(percent(gain), " faster than SP ", best->sp, "; ",
                             percent(plan->improvement_rate), " is required");
    } else {
      one.why = "the best single chunk of its policy";
      if (best != nullptr) {
        best->why = absl::StrCat("SP ", one.sp, " is ", percent(gain), " faster");
      }
      best = &one;
    }
  }
  if (plan->choice == PlanExplanation::Choice::kLater || plan->chunks.empty()) return;
  const bool chunked = plan->chunks.size() > 1;
  for (AlternativeExplanation& one : plan->alternatives) {
    const bool size = one.sp == static_cast<int>(plan->chunks.back().instances.size());
    if (plan->choice == PlanExplanation::Choice::kFixedSize) {
      one.why = size ? "chosen: the policy's size" : "the policy has another size";
    } else if (&one == best) {
      one.why = chunked ? absl::StrFormat("its instances end earlier in %d chunks: at %.6f s",
                                          plan->chunks.size(), plan->ttft_s)
                        : "chosen";
    }
  }
}

std::string CompletedBy(FinishReason reason) {
  return reason == FinishReason::kLength ? "completed: max_tokens" : "completed: stop token";
}

std::string TextOf(const RouterEnd& end) {
  switch (end.how) {
    case RouterEnd::How::kStopToken:
      return "completed: stop token";
    case RouterEnd::How::kStopString:
      return "completed: stop string";
    case RouterEnd::How::kMaxTokens:
      return "completed: max_tokens";
    case RouterEnd::How::kClientGone:
      return "client disconnected";
    case RouterEnd::How::kResumed:
      return "resumed: " + end.why;
    case RouterEnd::How::kFailed:
      break;
  }
  return "failed: " + end.why;
}

namespace {

// All KV was taken by then: no chunk of the last plan ended later.
void NotePrefilled(TimeUs at_us, Explanation* explanation) {
  if (explanation->prefilled_us < 0) explanation->prefilled_us = at_us;
  if (explanation->plans.empty()) return;
  PlanExplanation& plan = explanation->plans.back();
  for (ChunkExplanation& chunk : plan.chunks) {
    if (chunk.ended_us >= 0) continue;
    chunk.ended_us =
        std::max({TimeUs{0}, chunk.started_us, explanation->prefilled_us - plan.decided_us});
  }
}

// Reports arrive late and on different streams. Times are adjusted so that their order is
// plausible: what must precede or follow the first token is shown so.
void PutInOrder(Explanation* explanation) {
  const TimeUs first_us = explanation->first_token_us;
  if (first_us < 0) return;
  if (explanation->ended_us >= 0) explanation->ended_us = std::max(explanation->ended_us, first_us);
  explanation->prefilled_us = std::min(explanation->prefilled_us, first_us);
  explanation->placed_us = std::min(explanation->placed_us, first_us);
  if (explanation->plans.empty()) return;
  PlanExplanation& plan = explanation->plans.back();
  const TimeUs limit_us = std::max<TimeUs>(0, first_us - plan.decided_us);
  for (ChunkExplanation& chunk : plan.chunks) {
    chunk.ended_us = std::min(chunk.ended_us, limit_us);
    chunk.started_us = std::min(chunk.started_us, limit_us);
  }
}

}  // namespace

bool TakeRouterEnd(const RouterEnd& end, Explanation* explanation) {
  explanation->state = TextOf(end);
  explanation->provisional = false;
  explanation->output_tokens = end.output_tokens;
  explanation->first_token_us = end.first_token_us;
  const bool completed = end.how != RouterEnd::How::kClientGone &&
                         end.how != RouterEnd::How::kFailed && end.how != RouterEnd::How::kResumed;
  if (end.first_token_us >= 0) {
    NotePrefilled(std::min(end.first_token_us, explanation->ended_us), explanation);
  } else if (completed) {
    NotePrefilled(explanation->ended_us, explanation);
  }
  PutInOrder(explanation);
  return end.how == RouterEnd::How::kFailed && !std::exchange(explanation->failed, true);
}

void PlanTotals::Count(const PlanExplanation& plan) {
  if (plan.chunks.empty()) return;
  ++plans_by_chunks[plan.chunks.size()];
  for (const ChunkExplanation& chunk : plan.chunks) {
    ++chunks_by_shape[{chunk.instances.size(), chunk.tp}];
  }
  const ChunkExplanation& last = plan.chunks.back();
  if (plan.ttft_s <= 0 || last.ended_us < 0) return;
  const double ended_s = static_cast<double>(last.ended_us) * 1e-6;
  estimated_s += plan.ttft_s;
  actual_s += ended_s;
  error_s += std::abs(ended_s - plan.ttft_s);
}

void FinishedExplanations::CountIfPrefilled(const Explanation& explanation) {
  if (explanation.prefilled_us < 0 || explanation.plans.empty()) return;
  totals_[explanation.model].Count(explanation.plans.back());
}

void FinishedExplanations::Add(TimeUs now, Explanation explanation, AwaitedReports reports) {
  if (max_ == 0) return;
  if (finished_.size() >= max_) {
    const RequestId oldest = finished_.front().explanation.id;
    names_.Remove(finished_.front().explanation, dropped_);
    const auto awaited = awaited_.find(oldest);  // it may be of the same id, submitted again
    if (awaited != awaited_.end() && awaited->second.number == dropped_) awaited_.erase(awaited);
    if (numbers_.at(oldest) == dropped_) numbers_.erase(oldest);
    finished_.pop_front();
    ++dropped_;
  }
  const uint64_t number = dropped_ + finished_.size();
  numbers_[explanation.id] = number;
  names_.Add(explanation, number);
  if (!reports.empty()) awaited_[explanation.id] = {number, std::move(reports)};
  if (explanation.prefilled_us >= 0) NotePrefilled(explanation.prefilled_us, &explanation);
  CountIfPrefilled(explanation);
  finished_.push_back({now - explanation.ended_us, std::move(explanation)});
}

void FinishedExplanations::TakeEnded(const EndedRequest& ended, InstanceId instance) {
  const auto it = awaited_.find(ended.id);
  if (it == awaited_.end() || it->second.reports.epoch != ended.epoch) return;
  AwaitedReports& reports = it->second.reports;
  Explanation& explanation = At(it->second.number);
  const bool committed = ended.status.ok();
  if (instance == reports.decode) {
    reports.decode = {};
    if (committed) {  // tokens imply that all KV was there; a cancel implies nothing about the KV
      reports.prefill.clear();
      if (explanation.provisional) explanation.state = CompletedBy(ended.reason);
      explanation.provisional = false;
    }
  } else if (reports.prefill.count(instance) == 0) {
    return;
  } else if (committed) {
    reports.prefill.erase(instance);
  } else {
    awaited_.erase(it);
    return;
  }
  if (reports.prefill.empty()) {
    const bool known = explanation.prefilled_us >= 0;
    NotePrefilled(explanation.ended_us, &explanation);
    if (!known) CountIfPrefilled(explanation);
    if (explanation.provisional) explanation.state = kEndedByRouter;
  }
  if (reports.empty()) awaited_.erase(it);
}

bool FinishedExplanations::TakeRouterEnd(const RouterEnd& end) {
  const auto it = numbers_.find(end.id);
  if (it == numbers_.end()) return false;
  Explanation& explanation = At(it->second);
  const bool known = explanation.prefilled_us >= 0;
  const bool failed = scheduler::TakeRouterEnd(end, &explanation);
  if (!known) CountIfPrefilled(explanation);
  return failed;
}

Explanation* FinishedExplanations::Find(RequestId id) {
  const auto it = numbers_.find(id);
  return it == numbers_.end() ? nullptr : &At(it->second);
}

void FinishedExplanations::Find(const std::string& request, TimeUs now, size_t limit,
                                std::vector<Explanation>* out) const {
  names_.ForEachLatest(request, [&](uint64_t number) {
    if (out->size() >= limit) return false;
    const Finished& finished = finished_[number - dropped_];
    if (!finished.explanation.Answers(request)) return true;
    out->push_back(finished.explanation);
    for (PlanExplanation& plan : out->back().plans) TellWhy(&plan);
    out->back().age_us = now - finished.submitted_us;
    return true;
  });
}

bool FinishedExplanations::Remembers(uint64_t number, RequestId id) const {
  return number >= dropped_ && number - dropped_ < finished_.size() &&
         finished_[number - dropped_].explanation.id == id;
}

absl::Status FinishedExplanations::CheckInvariants() const {
  if (finished_.size() > max_) {
    return absl::InternalError("FinishedExplanations: more explanations are kept than the limit");
  }
  for (const auto& [id, number] : numbers_) {
    if (Remembers(number, id)) continue;
    return absl::InternalError(
        absl::StrCat("FinishedExplanations: ", ToString(id), " has a number but no explanation"));
  }
  for (const auto& [id, awaited] : awaited_) {
    if (Remembers(awaited.number, id)) continue;
    return absl::InternalError(
        absl::StrCat("FinishedExplanations: ", ToString(id), " is awaited but has no explanation"));
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
