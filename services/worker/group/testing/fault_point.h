// The points at which a worker's process may kill or stop itself (fault_points.h), by name: before,
// during and after each phase of a formation.
#pragma once

#include <string_view>

namespace skein::services::testing {

enum class FaultPoint {
  kNone,
  kPrepareOrdered,  // the order to prepare has come; the worker has not taken it
  kPrepared,        // it is prepared; the orchestrator does not know
  kCommitOrdered,   // of the lead: the commit has come; the worker has not taken it
  kBound,           // it is about to run the epoch's first step; the orchestrator does not know
  kStepLaunched,    // a step together is about to begin
  kInStep,          // between two layers of one, while the others wait in a collective
  kStepEnded,       // the engine has ended one; the worker and the others do not know
  kReleaseOrdered,  // of the lead: the order to release has come; the worker has not taken it
  kEnded,           // it works alone again; the orchestrator does not know
};

inline const char* NameOf(FaultPoint point) {
  constexpr const char* kNames[] = {
      "none",          "prepare-ordered", "prepared",   "commit-ordered",  "bound",
      "step-launched", "in-step",         "step-ended", "release-ordered", "ended"};
  return kNames[static_cast<int>(point)];
}
inline FaultPoint FaultPointOf(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(FaultPoint::kEnded); ++i) {
    if (name == NameOf(static_cast<FaultPoint>(i))) return static_cast<FaultPoint>(i);
  }
  return FaultPoint::kNone;
}

}  // namespace skein::services::testing
