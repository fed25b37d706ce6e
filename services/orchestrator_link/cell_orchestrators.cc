#include "services/orchestrator_link/cell_orchestrators.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "services/rpc/status_map.h"

namespace skein::services {

absl::StatusOr<std::vector<std::string>> ParseCell(std::string_view cell) {
  std::vector<std::string> endpoints =
      absl::StrSplit(absl::string_view(cell.data(), cell.size()), '+');
  for (size_t i = 0; i < endpoints.size(); ++i) {
    if (endpoints[i].empty()) {
      return absl::InvalidArgumentError("an address is empty; use HOST:PORT");
    }
    if (std::find(endpoints.begin(), endpoints.begin() + static_cast<std::ptrdiff_t>(i),
                  endpoints[i]) != endpoints.begin() + static_cast<std::ptrdiff_t>(i)) {
      return absl::InvalidArgumentError(
          absl::StrCat(endpoints[i], " is there twice; name each once"));
    }
  }
  return endpoints;
}

bool OrchestratorIsGone(const absl::Status& status) {
  if (absl::IsCancelled(status)) return true;
  return absl::IsUnavailable(status) && !LeaderOf(status).has_value();
}

namespace {

int64_t PassedOverUs(CellOrchestrators::Failure how) {
  switch (how) {
    case CellOrchestrators::Failure::kSilent:
      return CellOrchestrators::kSilentUs;
    case CellOrchestrators::Failure::kSteppedDown:
      return CellOrchestrators::kSteppedDownUs;
    default:
      return CellOrchestrators::kFailedUs;
  }
}

}  // namespace

CellOrchestrators::CellOrchestrators(std::string_view cell) {
  for (const absl::string_view endpoint :
       absl::StrSplit(absl::string_view(cell.data(), cell.size()), '+')) {
    all_.push_back({.endpoint = std::string(endpoint)});
  }
  given_ = all_.size();
}

std::string CellOrchestrators::Current() const {
  std::lock_guard lock(mutex_);
  return all_[current_].endpoint;
}

void CellOrchestrators::BeginRound() {
  std::lock_guard lock(mutex_);
  for (One& one : all_) one.called = false;
  answered_ = false;
}

size_t CellOrchestrators::Find(const std::string& endpoint) {
  for (size_t i = 0; i < all_.size(); ++i) {
    if (all_[i].endpoint == endpoint) return i;
  }
  if (all_.size() == given_ + kNamedMax) {  // the one that was named first, but not the current one
    const size_t gone = current_ == given_ ? given_ + 1 : given_;
    all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(gone));
    if (current_ > gone) --current_;
  }
  all_.push_back({.endpoint = endpoint});
  return all_.size() - 1;
}

std::optional<size_t> CellOrchestrators::Next(int64_t now_us) const {
  for (const bool avoided : {false, true}) {
    if (avoided && answered_) break;
    for (size_t step = 1; step < all_.size(); ++step) {
      const size_t i = (current_ + step) % all_.size();
      if (!all_[i].called && (now_us < all_[i].avoid_until_us) == avoided) return i;
    }
  }
  return std::nullopt;
}

bool CellOrchestrators::Failed(const std::string& orchestrator, Failure how,
                               const std::string& leader, int64_t now_us) {
  std::lock_guard lock(mutex_);
  const size_t failed = Find(orchestrator);
  all_[failed].called = true;
  if (how == Failure::kStandby) {
    answered_ = true;
    all_[failed].avoid_until_us = INT64_MIN;
  } else {
    all_[failed].avoid_until_us = now_us + PassedOverUs(how);
  }
  if (current_ != failed) return false;  // another call has found that already
  if (!leader.empty()) {
    const size_t named = Find(leader);
    if (!all_[named].called && now_us >= all_[named].avoid_until_us) {
      current_ = named;
      return true;
    }
  }
  const std::optional<size_t> next = Next(now_us);
  if (next.has_value()) {
    current_ = *next;
    return true;
  }
  // The next round begins with one that answers, if there is one: it leads by then, or knows.
  if (how != Failure::kStandby) {
    for (size_t step = 1; step < all_.size(); ++step) {
      const size_t i = (current_ + step) % all_.size();
      if (answered_ ? now_us < all_[i].avoid_until_us : i >= given_) continue;
      current_ = i;
      break;
    }
  }
  return false;
}

bool CellOrchestrators::Failed(const std::string& orchestrator, const absl::Status& status,
                               int64_t now_us, bool led) {
  if (const auto leader = LeaderOf(status)) {
    return Failed(orchestrator, led ? Failure::kSteppedDown : Failure::kStandby, *leader, now_us);
  }
  if (OrchestratorIsGone(status)) return Failed(orchestrator, Failure::kTransport, "", now_us);
  if (absl::IsDeadlineExceeded(status)) return Failed(orchestrator, Failure::kSilent, "", now_us);
  return false;
}

}  // namespace skein::services
