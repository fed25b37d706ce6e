#include "services/skeinctl/cluster/formation_orders.h"

#include <chrono>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "services/skeinctl/cluster/cluster_client.h"
#include "services/skeinctl/cluster/drain.h"

namespace skein::services {
namespace {

using Act = v1::ChangeFormationRequest::Act;
using Clock = std::chrono::steady_clock;

v1::PrepareFormation::Own OwnOf(const std::string& name) {
  if (name == "sequential") return v1::PrepareFormation::SEQUENTIAL;
  if (name == "soft") return v1::PrepareFormation::SOFT_PREEMPT;
  if (name == "hard") return v1::PrepareFormation::HARD_PREEMPT;
  return v1::PrepareFormation::SHARE;
}

std::string DoneJson(const char* command, const v1::ChangeFormationResponse& response,
                     double took_s) {
  nlohmann::ordered_json json;
  json["order"] = command;
  json["done"] = nlohmann::ordered_json::array();
  for (const std::string& one : response.done()) json["done"].push_back(one);
  json["took_s"] = took_s;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

absl::StatusOr<std::string> Change(const char* command, Act act, const FormationOrderFlags& flags) {
  const auto orchestrator = FindOrchestrator(flags.orchestrator, EnvironmentMap());
  if (!orchestrator.ok()) return orchestrator.status();
  ClusterClient client(*orchestrator);
  const auto status = client.Status();
  if (!status.ok()) return status.status();
  const ProcessNames names = ProcessNames::Of(*orchestrator, EnvironmentMap());
  const auto order = OrderOf(act, flags, *status, names);
  if (!order.ok()) return order.status();
  const Clock::time_point start = Clock::now();
  const auto wait = std::chrono::milliseconds(static_cast<int64_t>(flags.timeout_s * 1000));
  const auto response = client.ChangeFormation(*order, wait);
  if (!response.ok()) return response.status();
  if (flags.format != "json") return DoneText(*response);
  return DoneJson(command, *response, std::chrono::duration<double>(Clock::now() - start).count());
}

int Run(const char* command, Act act, const FormationOrderFlags& flags) {
  const auto text = Change(command, act, flags);
  if (!text.ok()) return EndWith(command, text.status());
  std::fputs(text->c_str(), stdout);
  return kDone;
}

}  // namespace

absl::StatusOr<v1::ChangeFormationRequest> OrderOf(v1::ChangeFormationRequest::Act act,
                                                   const FormationOrderFlags& flags,
                                                   const v1::StatusResponse& status,
                                                   const ProcessNames& names) {
  v1::ChangeFormationRequest order;
  order.set_act(act);
  for (const std::string& name : flags.instances) {
    const auto target = FindTarget(status, names, name);
    if (!target.ok()) return target.status();
    if (target->instance == 0) {
      return absl::InvalidArgumentError(absl::StrCat("INSTANCE: '", name, "' is a router"));
    }
    order.add_instances(target->instance);
  }
  order.set_group(flags.group);
  order.set_size(static_cast<uint32_t>(flags.size));
  order.set_how(flags.hard ? v1::EndFormation::HARD : v1::EndFormation::SEQUENTIAL);
  order.set_own(OwnOf(flags.own));
  if (flags.mode == "was") order.set_shared(v1::SHARED_MODE_WAS);
  if (flags.mode == "cas") order.set_shared(v1::SHARED_MODE_CAS);
  return order;
}

std::string DoneText(const v1::ChangeFormationResponse& response) {
  if (response.done().empty()) return "nothing to change\n";
  std::string text;
  for (const std::string& one : response.done()) absl::StrAppend(&text, one, "\n");
  return text;
}

void FormationOrderFlags::RegisterOrder(const std::string& about, const char* of_instances,
                                        const char* of_group, FlagSet* set) {
  set->About(absl::StrCat(about, " ", ExitCodesHelp()));
  set->RepeatedPositional(
      &instances, "INSTANCE",
      absl::StrCat(of_instances,
                   " Ids or endpoints as skeinctl status shows them, or names of "
                   "processes (decode-1) in a cluster that deploy/local/up started."));
  RegisterCluster(&orchestrator, set);
  set->String(&group, "group",
              absl::StrCat(of_group, " As skeinctl formation names it, in place of INSTANCE."))
      .Value("GROUP");
  set->Double(&timeout_s, "timeout-s",
              "Longest wait for the end of the switch, which goes on after it.", 0.1, 3600);
  RegisterFormat(&format, "text", set);
  set->Check([this]() -> absl::Status {
    if (instances.empty() == group.empty()) {
      return absl::InvalidArgumentError(instances.empty() ? "INSTANCE or --group is required"
                                                          : "give INSTANCE or --group, not both");
    }
    return absl::OkStatus();
  });
}

void FormationOrderFlags::RegisterSize(FlagSet* set) {
  set->Int(&size, "size",
           "With --group: instances of each formation; 0: as many as can be bound together.", 0,
           1024);
  set->Check([this]() -> absl::Status {
    if (size == 0 || !group.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError("--size: only with --group; INSTANCE says how many");
  });
}

void FormationOrderFlags::RegisterHard(FlagSet* set) {
  set->Bool(&hard, "hard",
            "Do not wait until the requests of a bound group have ended: its lead takes them back, "
            "and computes their prompts and tokens anew.");
}

void BindFlags::Register(FlagSet* set) {
  RegisterOrder(
      "Bind decode instances of a node, so that they run steps together, and pin them so.\n\nTheir "
      "number is 2, 4, 8 ...; they are neighbours in the order of their group (skeinctl "
      "formation). "
      "If one of them refuses or is lost, all work alone as before. Formations that overlap are "
      "released first.",
      "Exactly these are bound together.", "All instances of this group.", set);
  RegisterSize(set);
  set->String(&own, "own",
              "How the requests that these instances run alone fare. share: they go on, in turns "
              "with the group's. sequential: they end first, for at most a minute, and no new ones "
              "come. soft: likewise, but the first instance, and each other one whose own have "
              "ended, takes requests meanwhile; the group then computes them anew. hard: they "
              "pause with their KV in place while the group has something to run, for at most a "
              "minute.")
      .OneOf({"share", "sequential", "soft", "hard"})
      .Value("HOW");
  RegisterHard(set);
}

void ShareFlags::Register(FlagSet* set) {
  RegisterOrder(
      "Have decode instances of a node share their weights, and pin them so.\n\nEach goes on with "
      "its own requests. The feed-forward weights of a layer stay at one of them, which frees "
      "memory for more requests at a time. Which instances can share with each other is as with "
      "skeinctl bind. If one of them refuses, such as because its engine cannot share, or is lost, "
      "all work alone as before. Formations that overlap are released first.",
      "Exactly these share their weights.", "All instances of this group.", set);
  RegisterSize(set);
  set->String(
         &mode, "mode",
         "was: each instance reads the weights from their owner ahead of its step, which is "
         "faster for large batches. cas: the owner computes with them for the others, which is "
         "faster for small ones. auto: the orchestrator chooses by the batches, and changes "
         "it.")
      .OneOf({"auto", "was", "cas"})
      .Value("MODE");
  RegisterHard(set);
}

void ReleaseFlags::Register(FlagSet* set) {
  RegisterOrder(
      "Release bound instances, so that each works alone, and pin them so.\n\nThe requests of the "
      "bound group end first, for at most a minute. Instances that share their weights take them "
      "back.",
      "Each formation that one of these is in.", "All formations of this group.", set);
  RegisterHard(set);
}

void PinFlags::Register(FlagSet* set) {
  RegisterOrder("Keep instances in the formation that they are in, whatever the policy says.",
                "Each formation that one of these is in.", "All formations of this group.", set);
}

void UnpinFlags::Register(FlagSet* set) {
  RegisterOrder("Let the policy decide again about the formation of instances.",
                "Each formation that one of these is in.", "All formations of this group.", set);
}

int RunBind(const BindFlags& flags) {
  return Run("bind", v1::ChangeFormationRequest::ACT_BIND, flags);
}
int RunShare(const ShareFlags& flags) {
  return Run("share", v1::ChangeFormationRequest::ACT_SHARE, flags);
}
int RunRelease(const ReleaseFlags& flags) {
  return Run("release", v1::ChangeFormationRequest::ACT_RELEASE, flags);
}
int RunPin(const PinFlags& flags) { return Run("pin", v1::ChangeFormationRequest::ACT_PIN, flags); }
int RunUnpin(const UnpinFlags& flags) {
  return Run("unpin", v1::ChangeFormationRequest::ACT_UNPIN, flags);
}

}  // namespace skein::services
