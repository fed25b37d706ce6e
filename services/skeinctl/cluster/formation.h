// skeinctl formation: the groups of a node's instances, the formations that they are in, and why.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "proto/orchestrator.pb.h"
#include "services/flags/flags.h"
#include "services/skeinctl/cluster/cluster_view.h"
#include "services/skeinctl/cluster/formation_verify.h"

namespace skein::services {

struct FormationFlags {
  std::string group;
  std::string orchestrator;
  std::string format = "text";
  bool all = false;
  bool verify = false;
  double watch_s = 2;
  void Register(FlagSet* set);
};

// Exit code: exit_codes.h; kNotFound for an unknown group, kDegraded if a check of --verify failed.
int RunFormation(const FormationFlags& flags);

// Names of instances for people: "1 (decode-0)", or the id alone.
using InstanceNames = std::map<uint64_t, std::string>;
InstanceNames NamesOf(const v1::StatusResponse& status, const ProcessNames& names);

// What is shown of the groups. Pure.
//
// `group`: the one of that name, whatever its role; "": all, those of prefill instances only if
// `all` is set. NOT_FOUND lists the groups that there are.
absl::StatusOr<std::vector<v1::GroupStatus>> Chosen(const v1::ListGroupsResponse& response,
                                                    const std::string& group, bool all);

// For people, at most 100 columns unless a word is longer. `checks`: what --verify found.
std::string FormationText(const std::vector<v1::GroupStatus>& groups, const InstanceNames& names,
                          const std::vector<FormationChecks>* checks = nullptr);
// One JSON object with the fields of the orchestrator's /debug/groups; docs/formations.md has them.
nlohmann::ordered_json FormationJson(const std::vector<v1::GroupStatus>& groups,
                                     const std::vector<FormationChecks>* checks = nullptr);

}  // namespace skein::services
