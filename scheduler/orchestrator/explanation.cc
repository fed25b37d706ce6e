#include "scheduler/orchestrator/explanation.h"

#include <algorithm>

namespace skein::scheduler {

bool Explanation::Answers(const std::string& request) const {
  return std::find(names.begin(), names.end(), request) != names.end() || ToString(id) == request;
}

void FinishedExplanations::Add(TimeUs now, Explanation explanation, AwaitedReports reports) {
  if (max_ == 0) return;
  if (finished_.size() >= max_) {
    awaited_.erase(finished_.front().explanation.id);
    finished_.pop_front();
    ++dropped_;
  }
  if (!reports.prefill.empty()) {
    awaited_[explanation.id] = {dropped_ + finished_.size(), std::move(reports)};
  }
  finished_.push_back({now - explanation.ended_us, std::move(explanation)});
}

void FinishedExplanations::TakeEnded(RequestId id, Epoch epoch, InstanceId instance,
                                     bool committed) {
  const auto it = awaited_.find(id);
  if (it == awaited_.end() || it->second.reports.epoch != epoch) return;
  AwaitedReports& reports = it->second.reports;
  if (instance == reports.decode) {
    // It has tokens of all KV only; that it was cancelled says nothing of the KV.
    if (committed) reports.prefill.clear();
  } else if (reports.prefill.count(instance) == 0) {
    return;
  } else if (committed) {
    reports.prefill.erase(instance);
  } else {
    awaited_.erase(it);
    return;
  }
  if (!reports.prefill.empty()) return;
  Explanation& explanation = finished_[it->second.number - dropped_].explanation;
  explanation.prefilled_us = explanation.ended_us;
  explanation.state = std::move(reports.state);
  awaited_.erase(it);
}

void FinishedExplanations::Find(const std::string& request, TimeUs now, size_t limit,
                                std::vector<Explanation>* out) const {
  for (auto it = finished_.rbegin(); it != finished_.rend() && out->size() < limit; ++it) {
    if (!it->explanation.Answers(request)) continue;
    out->push_back(it->explanation);
    out->back().age_us = now - it->submitted_us;
  }
}

}  // namespace skein::scheduler
