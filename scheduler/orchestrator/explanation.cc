#include "scheduler/orchestrator/explanation.h"

#include <algorithm>

namespace skein::scheduler {

bool Explanation::Answers(const std::string& request) const {
  return std::find(names.begin(), names.end(), request) != names.end() || ToString(id) == request;
}

void FinishedExplanations::Add(TimeUs now, Explanation explanation) {
  if (finished_.size() >= max_) finished_.pop_front();
  if (max_ > 0) finished_.push_back({now - explanation.ended_us, std::move(explanation)});
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
