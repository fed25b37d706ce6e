// skeinctl bind, share, release, pin and unpin: orders about the formation of a group.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/orchestrator.pb.h"
#include "services/flags/flags.h"
#include "services/skeinctl/cluster/cluster_view.h"

namespace skein::services {

// Flags of the five commands; `size`, `own`, `mode` and `hard` are not of all.
struct FormationOrderFlags {
  std::vector<std::string> instances;
  std::string group;
  int64_t size = 0;
  std::string own = "share";
  std::string mode = "auto";
  bool hard = false;
  double timeout_s = 90;
  std::string orchestrator;
  std::string format = "text";

 protected:
  void RegisterOrder(const std::string& about, const char* of_instances, const char* of_group,
                     FlagSet* set);
  void RegisterSize(FlagSet* set);
  void RegisterHard(FlagSet* set);
};

struct BindFlags : FormationOrderFlags {
  void Register(FlagSet* set);
};
struct ShareFlags : FormationOrderFlags {
  void Register(FlagSet* set);
};
struct ReleaseFlags : FormationOrderFlags {
  void Register(FlagSet* set);
};
struct PinFlags : FormationOrderFlags {
  void Register(FlagSet* set);
};
struct UnpinFlags : FormationOrderFlags {
  void Register(FlagSet* set);
};

// Exit code: exit_codes.h; kNotInTime if the switch has not ended in time.
int RunBind(const BindFlags& flags);
int RunShare(const ShareFlags& flags);
int RunRelease(const ReleaseFlags& flags);
int RunPin(const PinFlags& flags);
int RunUnpin(const UnpinFlags& flags);

// The order of these flags. NOT_FOUND and INVALID_ARGUMENT name what is not a decode instance of
// the cluster. Pure.
absl::StatusOr<v1::ChangeFormationRequest> OrderOf(v1::ChangeFormationRequest::Act act,
                                                   const FormationOrderFlags& flags,
                                                   const v1::StatusResponse& status,
                                                   const ProcessNames& names);

// What came of it, for people: a line for each formation. Pure.
std::string DoneText(const v1::ChangeFormationResponse& response);

}  // namespace skein::services
