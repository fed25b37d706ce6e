#include "services/skeinctl/cluster/formation.h"

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/skeinctl/cluster/cluster_client.h"

namespace skein::services {
namespace {

// What the command shows.
struct View {
  std::vector<v1::GroupStatus> groups;
  InstanceNames names;
  std::vector<FormationChecks> checks;  // empty without --verify
};

absl::StatusOr<View> Look(const FormationFlags& flags, const std::string& orchestrator) {
  ClusterClient client(orchestrator);
  const auto status = client.Status();
  if (!status.ok()) return status.status();
  const auto groups = client.Groups();
  if (!groups.ok()) return groups.status();
  const bool all = flags.all || flags.format == "json";
  auto chosen = Chosen(*groups, flags.group, all);
  if (!chosen.ok()) return chosen.status();
  View view{.groups = *std::move(chosen),
            .names = NamesOf(*status, ProcessNames::Of(orchestrator, EnvironmentMap())),
            .checks = {}};
  if (!flags.verify) return view;
  view.checks = Verify(view.groups, *status, view.names, flags.watch_s);
  const auto now = client.Groups();
  if (!now.ok()) return now.status();
  DropChanged(*now, &view.checks);
  return view;
}

}  // namespace

InstanceNames NamesOf(const v1::StatusResponse& status, const ProcessNames& names) {
  InstanceNames found;
  for (const v1::InstanceStatus& one : status.instances()) {
    const std::string local = names.Find(one.registration().host(), one.registration().pid());
    const std::string id = absl::StrCat(one.instance());
    found[one.instance()] = local.empty() || local == "-" ? id : absl::StrCat(id, " (", local, ")");
  }
  return found;
}

absl::StatusOr<std::vector<v1::GroupStatus>> Chosen(const v1::ListGroupsResponse& response,
                                                    const std::string& group, bool all) {
  std::vector<v1::GroupStatus> chosen;
  std::vector<std::string> known;
  for (const v1::GroupStatus& one : response.groups()) {
    known.push_back(one.name());
    const bool shown = group.empty() ? all || one.role() == v1::ROLE_DECODE : one.name() == group;
    if (shown) chosen.push_back(one);
  }
  if (group.empty() || !chosen.empty()) return chosen;
  return absl::NotFoundError(absl::StrCat("--group: '", group,
                                          "' is no group of this cluster. Known: ",
                                          known.empty() ? "none" : absl::StrJoin(known, ", ")));
}

void FormationFlags::Register(FlagSet* set) {
  set->About(absl::StrCat(
      "Show the groups of a node's instances, how each is arranged (its formation), since when, "
      "why, "
      "and what was rejected.\n\nWith --verify, read what each member of a bound group counts, "
      "and check that they work together: the same steps, bytes of collectives, about the same "
      "blocks and CPU time, and only its part of the blocks that one instance alone would hold. "
      "skeinctl asks the admin ports of the workers (GET /metrics). A group "
      "that ran nothing meanwhile is neither right nor wrong. Exit code ",
      kDegraded, " if a check failed. ", ExitCodesHelp()));
  RegisterCluster(&orchestrator, set);
  set->String(&group, "group", "Only the group of this name.").Value("GROUP");
  set->Bool(&all, "all", "Also the groups of prefill instances.");
  set->Bool(&verify, "verify", "Check that the members of each bound group work together.");
  set->Double(&watch_s, "watch-s", "With --verify: how long to watch them.", 0.1, 600);
  RegisterFormat(&format, "text", set);
}

int RunFormation(const FormationFlags& flags) {
  const auto orchestrator = FindOrchestrator(flags.orchestrator, EnvironmentMap());
  if (!orchestrator.ok()) return EndWith("formation", orchestrator.status());
  const auto view = Look(flags, *orchestrator);
  if (!view.ok()) return EndWith("formation", view.status());
  const std::vector<FormationChecks>* checks = flags.verify ? &view->checks : nullptr;
  const std::string shown =
      flags.format == "json"
          ? FormationJson(view->groups, checks)
                    .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
                "\n"
          : FormationText(view->groups, view->names, checks);
  std::fputs(shown.c_str(), stdout);
  for (const FormationChecks& one : view->checks) {
    if (VerdictOf(one.checks) == Verdict::kFailed) return kDegraded;
  }
  return kDone;
}

}  // namespace skein::services
