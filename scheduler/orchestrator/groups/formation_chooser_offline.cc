// What offline jobs make of the members that nothing before them has a use for.
#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "scheduler/orchestrator/groups/formation_chooser.h"

namespace skein::scheduler::orchestrator {

// Why nothing is to share its weights now; empty: nothing speaks against it. What shares them goes
// on while a line waits or runs, and for a while after the last one.
std::string Chooser::WhyNotShared(bool is_shared) const {
  const auto members = static_cast<double>(members_);
  const double online = static_cast<double>(load_.online_requests) / members;
  const double lines = static_cast<double>(load_.offline_lines) / members;
  const bool young = now_ - load_.since_us < config_.min_dwell_us;
  if (load_.online_waits) return "an online request waits for a place";
  if (is_shared && online >= config_.release_sequences) {
    return absl::StrFormat("%.2f online requests an instance, at least %.2f", online,
                           config_.release_sequences);
  }
  if (is_shared) return IsOfflineOver() && !young ? "the offline jobs are over" : "";
  if (online > config_.bind_sequences) {
    return absl::StrFormat("%.2f online requests an instance, more than %.2f", online,
                           config_.bind_sequences);
  }
  if (lines < config_.share_lines) {
    return absl::StrFormat("%.1f offline lines an instance wait, less than %.1f", lines,
                           config_.share_lines);
  }
  return young ? "the present formation is kept for a while" : "";
}

bool Chooser::IsOfflineOver() const { return load_.offline_lines + load_.offline_requests == 0; }

void Chooser::TakeForOffline() {
  const bool is_shared = !load_.shared.empty();
  if (config_.share_lines == 0 || members_ < 2 || (!is_shared && IsOfflineOver())) return;
  if (std::string why = WhyNotShared(is_shared); !why.empty()) {
    // Online requests do not wait for offline ones to end.
    if (!load_.online_waits && IsOfflineOver()) choice_.release_shared = Switch::kSequential;
    choice_.rejected.push_back({"shared", std::move(why)});
    return;
  }
  const std::string why = absl::StrFormat("offline jobs: %d lines wait and %d requests run",
                                          load_.offline_lines, load_.offline_requests);
  for (const Subset& subset : load_.shared) {
    if (IsBindable(subset, members_) && IsFree(subset)) Share(subset, why);
  }
  if (!is_shared || WhyNotShared(/*is_shared=*/false).empty()) ShareFree(why);
}

// As many together as can be, and the rest in smaller formations.
void Chooser::ShareFree(const std::string& why) {
  const auto widest = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(members_)));
  for (int32_t size = std::min(widest, kBoundMax); size >= 2; size /= 2) {
    for (Subset subset = {0, size}; IsBindable(subset, members_); subset.first += size) {
      if (!IsFree(subset)) continue;
      const auto cannot = load_.unshareable.find(subset);
      if (cannot == load_.unshareable.end()) {
        Share(subset, why);
      } else if (size == 2) {
        choice_.rejected.push_back({"shared", cannot->second});
      }
    }
  }
}

void Chooser::Share(const Subset& subset, const std::string& why) {
  taken_.push_back(subset);
  choice_.shared.push_back({subset, BindReason::kOffline, why});
}

}  // namespace skein::scheduler::orchestrator
