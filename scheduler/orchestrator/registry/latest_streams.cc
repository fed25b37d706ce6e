#include "scheduler/orchestrator/registry/latest_streams.h"

#include "absl/strings/str_cat.h"

namespace skein::scheduler {

absl::Status LatestStreams::Take(const Process& process, uint64_t stream) {
  const auto [it, is_new] = latest_.try_emplace(process);
  Latest& latest = it->second;
  if (!is_new && stream <= latest.stream) {
    return absl::FailedPreconditionError(
        absl::StrCat("stream: ", stream, " is not above ", latest.stream,
                     ", the last one that this process has opened"));
  }
  by_age_.erase(latest.taken);
  latest = {.stream = stream, .taken = ++taken_};
  by_age_.emplace(latest.taken, process);
  if (latest_.size() > kMax) {
    const auto oldest = by_age_.begin();
    latest_.erase(oldest->second);
    by_age_.erase(oldest);
  }
  return absl::OkStatus();
}

absl::Status LatestStreams::CheckInvariants() const {
  if (latest_.size() == by_age_.size() && latest_.size() <= kMax) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("LatestStreams: ", latest_.size(), " processes, ",
                                          by_age_.size(), " by age, at most ", kMax));
}

}  // namespace skein::scheduler
