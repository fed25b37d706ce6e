#include "scheduler/orchestrator/requests/lost_attempts.h"

#include <iterator>
#include <utility>

namespace skein::scheduler::orchestrator {

void LostAttempts::Erase(std::map<RequestId, Entry>::iterator it) {
  order_.erase(it->second.number);
  entries_.erase(it);
}

void LostAttempts::Note(RequestId attempt, Lost lost) {
  Forget(attempt);
  if (lost.decodes.empty() && lost.kept_at == InstanceId{}) return;
  if (entries_.size() >= kMax) Erase(entries_.find(order_.begin()->second));
  entries_[attempt.First()] = {++last_number_, std::move(lost)};
  order_[last_number_] = attempt.First();
}

LostAttempts::Lost LostAttempts::Take(RequestId attempt) {
  const auto it = entries_.find(attempt.First());
  if (it == entries_.end()) return {};
  Lost lost = std::move(it->second.lost);
  Erase(it);
  return lost;
}

void LostAttempts::Forget(RequestId attempt) {
  const auto it = entries_.find(attempt.First());
  if (it != entries_.end()) Erase(it);
}

void LostAttempts::ForgetRouter(uint64_t router) {
  auto it = entries_.lower_bound(RequestId{router, 0});
  while (it != entries_.end() && it->first.router == router) {
    const auto next = std::next(it);
    Erase(it);
    it = next;
  }
}

absl::Status LostAttempts::CheckInvariants() const {
  for (const auto& [request, entry] : entries_) {
    const auto it = order_.find(entry.number);
    if (it != order_.end() && it->second == request) continue;
    return absl::InternalError("LostAttempts: a request is not noted under its number");
  }
  if (entries_.size() == order_.size()) return absl::OkStatus();
  return absl::InternalError("LostAttempts: a request that is not noted has a number");
}

}  // namespace skein::scheduler::orchestrator
