#include "scheduler/orchestrator/requests/engine_failures.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace skein::scheduler::orchestrator {

EngineFailures::EngineFailures(const FailedEngines& told) {
  for (const Incarnation engine : told) failed_.emplace(engine, InstanceId{});
}

// A router may have told of it first, without its number.
bool EngineFailures::Fail(Incarnation engine, InstanceId instance) {
  const auto [it, added] = failed_.try_emplace(engine, instance);
  it->second = instance;
  return added;
}

FailedEngines EngineFailures::failed() const {
  FailedEngines engines;
  for (const auto& [engine, instance] : failed_) engines.push_back(engine);
  return engines;
}

int64_t EngineFailures::failed_or_lost() const {
  auto all = static_cast<int64_t>(failed_.size());
  for (const auto& [engine, instance] : lost_) all += failed_.count(engine) == 0 ? 1 : 0;
  return all;
}

absl::Status EngineFailures::Verdict() const {
  const bool failed = static_cast<int64_t>(failed_.size()) >= kFailedMax;
  if (!failed && failed_or_lost() < kAllMax) return absl::OkStatus();
  const std::string why = absl::StrCat(failed_or_lost(),
                                       " engines failed or were lost while they computed this "
                                       "request (",
                                       ToString(), "): it is not planned again");
  return failed ? absl::InternalError(why) : absl::UnavailableError(why);
}

std::string EngineFailures::ToString() const {
  std::set<InstanceId> known;
  int64_t earlier = 0;
  for (const Engines* engines : {&failed_, &lost_}) {
    for (const auto& [engine, instance] : *engines) {
      if (instance == InstanceId{}) {
        ++earlier;
      } else {
        known.insert(instance);
      }
    }
  }
  const std::string names = absl::StrJoin(known, ", ", [](std::string* out, InstanceId instance) {
    absl::StrAppend(out, instance.value);
  });
  if (earlier == 0) return absl::StrCat("instances ", names);
  const std::string others = absl::StrCat(earlier, " under another orchestrator");
  return known.empty() ? others : absl::StrCat("instances ", names, ", and ", others);
}

void EarlyFailures::Add(RequestId request, Incarnation engine, InstanceId instance) {
  const auto [it, added] = failures_.try_emplace(request);
  it->second[engine] = instance;
  if (!added) return;
  oldest_first_.push_back(request);
  if (oldest_first_.size() <= kMax) return;
  failures_.erase(oldest_first_.front());
  oldest_first_.pop_front();
}

EarlyFailures::Engines EarlyFailures::Take(RequestId request) {
  auto taken = failures_.extract(request);
  if (taken.empty()) return {};
  std::erase(oldest_first_, request);
  return std::move(taken.mapped());
}

absl::Status EarlyFailures::CheckInvariants() const {
  const size_t listed = oldest_first_.size();
  if (failures_.size() == listed && listed <= kMax) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("EarlyFailures: ", failures_.size(), " requests, ",
                                          listed, " by age, at most ", kMax));
}

}  // namespace skein::scheduler::orchestrator
