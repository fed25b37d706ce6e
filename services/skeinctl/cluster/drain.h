// skeinctl drain: stops new requests at an instance or router, which finishes those it has.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "proto/orchestrator.pb.h"
#include "services/flags/flags.h"
#include "services/skeinctl/cluster/cluster_view.h"

namespace skein::services {

struct DrainFlags {
  std::string target;
  std::string admin;
  std::string admin_token_file;
  double after_s = 0;
  std::string orchestrator;
  std::string format = "text";
  bool undo = false;
  bool force = false;
  bool wait = false;
  double timeout_s = 600;
  void Register(FlagSet* set);
};

// Exit code: exit_codes.h.
int RunDrain(const DrainFlags& flags);

// The instance or router to drain; one of the two ids is not 0.
struct DrainTarget {
  uint64_t instance = 0;
  uint64_t router = 0;
  std::string label;  // for people: "decode-1 (instance 17)"
};

// `name`: an instance's id, a process's name (deploy/local/up), a gRPC, API or admin endpoint, or
// "router" if there is only one. NOT_FOUND lists the known ones.
absl::StatusOr<DrainTarget> FindTarget(const v1::StatusResponse& status, const ProcessNames& names,
                                       const std::string& name);

// Progress of a drain.
struct DrainProgress {
  bool present = false;  // it is in the cluster
  bool draining = false;
  bool drained = false;  // it may be stopped
  uint64_t running = 0;
  uint64_t waiting = 0;
  uint64_t held_blocks = 0;
  std::string gone_why;  // if not present: why, if the orchestrator remembers
};
DrainProgress ProgressOf(const v1::StatusResponse& status, const DrainTarget& target);
std::string TextOf(const DrainTarget& target, const DrainProgress& progress);

}  // namespace skein::services
