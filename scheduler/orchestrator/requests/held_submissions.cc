#include "scheduler/orchestrator/requests/held_submissions.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::scheduler::orchestrator {

void HeldSubmissions::Hold(const SubmitCalled& submission) {
  if (!numbers_.emplace(submission.spec->id, last_number_ + 1).second) return;
  held_.emplace(++last_number_, submission);
}

void HeldSubmissions::Forget(RequestId id) {
  const auto it = numbers_.find(id);
  if (it == numbers_.end()) return;
  held_.erase(it->second);
  numbers_.erase(it);
}

void HeldSubmissions::ForgetRouter(uint64_t router) {
  auto it = numbers_.lower_bound(RequestId{router, 0});
  while (it != numbers_.end() && it->first.router == router) {
    held_.erase(it->second);
    it = numbers_.erase(it);
  }
}

std::vector<SubmitCalled> HeldSubmissions::Take(size_t max) {
  std::vector<SubmitCalled> taken;
  taken.reserve(std::min(max, held_.size()));
  while (!held_.empty() && taken.size() < max) {
    SubmitCalled& next = taken.emplace_back(std::move(held_.begin()->second));
    held_.erase(held_.begin());
    numbers_.erase(next.spec->id);
  }
  return taken;
}

absl::Status HeldSubmissions::CheckInvariants() const {
  for (const auto& [number, submission] : held_) {
    const auto it = numbers_.find(submission.spec->id);
    if (it != numbers_.end() && it->second == number) continue;
    return absl::InternalError(absl::StrCat("HeldSubmissions: ", ToString(submission.spec->id),
                                            " is held, but not under its number"));
  }
  if (held_.size() == numbers_.size()) return absl::OkStatus();
  return absl::InternalError("HeldSubmissions: a request that is not held has a number");
}

}  // namespace skein::scheduler::orchestrator
