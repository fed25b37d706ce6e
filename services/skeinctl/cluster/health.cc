#include "services/skeinctl/cluster/health.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "scheduler/placement/step_age.h"
#include "services/codec/durations.h"
#include "services/skeinctl/terminal/table.h"

namespace skein::services {
namespace {

using Level = Health::Level;

class Verdict {
 public:
  void Add(Level level, std::string reason) { found_.emplace_back(level, std::move(reason)); }
  Health Take() {
    std::stable_sort(found_.begin(), found_.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    Health health;
    if (!found_.empty()) health.level = found_.front().first;
    for (auto& [level, reason] : found_) health.reasons.push_back(std::move(reason));
    return health;
  }

 private:
  std::vector<std::pair<Level, std::string>> found_;
};

void JudgeModels(const v1::StatusResponse& status, Verdict* verdict) {
  if (status.models().empty()) {
    verdict->Add(Level::kCannotServe, "no instance has registered");
  }
  for (const v1::ModelHealth& model : status.models()) {
    const std::pair<const char*, uint32_t> roles[] = {{"prefill", model.prefill_serving()},
                                                      {"decode", model.decode_serving()}};
    for (const auto& [role, serving] : roles) {
      if (serving > 0) continue;
      verdict->Add(Level::kCannotServe,
                   absl::StrCat("model ", model.model(), " has no serving ", role, " instance"));
    }
  }
}

void JudgeRouters(const v1::StatusResponse& status, Verdict* verdict) {
  const bool serving = std::any_of(status.routers().begin(), status.routers().end(),
                                   [](const v1::RouterStatus& r) { return !r.draining(); });
  if (serving) return;
  verdict->Add(Level::kCannotServe,
               status.routers().empty() ? "no router reports" : "every router drains");
}

void JudgeLosses(const v1::StatusResponse& status, Verdict* verdict) {
  for (const v1::GoneStatus& gone : status.gone()) {
    if (gone.left() || gone.replaced()) continue;
    const std::string what =
        gone.instance() == 0
            ? absl::StrCat("router ", gone.endpoint())
            : absl::StrCat(gone.role() == v1::ROLE_PREFILL ? "prefill" : "decode", " instance ",
                           gone.instance(), " (", gone.endpoint(), ")");
    verdict->Add(Level::kDegraded,
                 absl::StrCat(what, " ", gone.why(), ", ",
                              DurationText(static_cast<double>(gone.gone_us()) * 1e-6), " ago"));
  }
}

void JudgeRefused(const v1::StatusResponse& status, Verdict* verdict) {
  for (const v1::RefusedPeer& peer : status.refused_peers()) {
    verdict->Add(Level::kDegraded, absl::StrCat(peer.what(), " ", peer.endpoint(),
                                                " is refused by the orchestrator: ", peer.why()));
  }
}

void JudgeInvariants(const v1::StatusResponse& status, Verdict* verdict) {
  if (status.invariants() != "ok") {
    verdict->Add(Level::kDegraded,
                 absl::StrCat("the orchestrator violates an invariant: ", status.invariants()));
  }
  for (const v1::InstanceStatus& instance : status.instances()) {
    if (instance.load().invariants_ok()) continue;
    verdict->Add(Level::kDegraded,
                 absl::StrCat("instance ", instance.instance(), " (",
                              instance.registration().endpoint(), ") violates an invariant"));
  }
}

// Returns 0 (unknown) for an invalid duration.
int64_t DurationOr0(uint64_t us) { return DurationFrom("", us).value_or(0); }

// The orchestrator's own rule; it avoids such instances.
void JudgeSteps(const v1::StatusResponse& status, Verdict* verdict) {
  for (const v1::InstanceStatus& instance : status.instances()) {
    const v1::Load& load = instance.load();
    if (!scheduler::IsStepSuspect(DurationOr0(load.step_age_us()),
                                  DurationOr0(load.step_estimate_us()))) {
      continue;
    }
    verdict->Add(
        Level::kDegraded,
        absl::StrCat("instance ", instance.instance(), " (", instance.registration().endpoint(),
                     ") receives no new requests: its current engine step has been running for ",
                     DurationText(static_cast<double>(load.step_age_us()) * 1e-6)));
  }
}

// Only the way between the orchestrator and the instance is broken.
void JudgeMissed(const v1::StatusResponse& status, Verdict* verdict) {
  for (const v1::InstanceStatus& instance : status.instances()) {
    if (!instance.missed()) continue;
    verdict->Add(Level::kDegraded,
                 absl::StrCat("decode instance ", instance.instance(), " (",
                              instance.registration().endpoint(),
                              ") does not report; routers that hear it: ", instance.heard_by(),
                              ". Its requests go on, it receives no new ones"));
  }
}

// Slow beside their peers, by the orchestrator's judgement.
void JudgePaces(const v1::StatusResponse& status, Verdict* verdict) {
  for (const v1::InstanceStatus& instance : status.instances()) {
    const char* what = instance.pace() == "slow"      ? "it receives fewer requests"
                       : instance.pace() == "suspect" ? "it receives no new requests"
                       : instance.pace() == "aside"
                           ? "it receives none for a while, and its streams went on elsewhere"
                           : nullptr;
    if (what == nullptr) continue;
    verdict->Add(
        Level::kDegraded,
        absl::StrCat("instance ", instance.instance(), " (", instance.registration().endpoint(),
                     ") is slow: its steps take ", absl::StrFormat("%.1f", instance.slowness()),
                     " times as long as those of ", instance.pace_peers(), " others; ", what));
  }
}

}  // namespace

Health HealthOf(const v1::StatusResponse& status) {
  Verdict verdict;
  JudgeModels(status, &verdict);
  JudgeRouters(status, &verdict);
  JudgeLosses(status, &verdict);
  JudgeRefused(status, &verdict);
  JudgeInvariants(status, &verdict);
  JudgeSteps(status, &verdict);
  JudgeMissed(status, &verdict);
  JudgePaces(status, &verdict);
  return verdict.Take();
}

const char* NameOf(Health::Level level) {
  return level == Level::kHealthy    ? "healthy"
         : level == Level::kDegraded ? "degraded"
                                     : "cannot serve";
}

int ExitCodeOf(Health::Level level) {
  switch (level) {
    case Level::kHealthy:
      return kDone;
    case Level::kDegraded:
      return kDegraded;
    case Level::kCannotServe:
      return kCannotServe;
  }
  return kFailed;
}

}  // namespace skein::services
