#include "services/skeinctl/chaos/scenario.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "services/skeinctl/chaos/network_fault.h"

namespace skein::services::chaos {
namespace {

Scenario One(Fault fault, const std::string& role, const std::string& summary) {
  return {.name = absl::StrCat(NameOf(fault), "-", role),
          .summary = summary,
          .play = Play::kOne,
          .fault = fault,
          .role = role};
}

// Of an orchestrator's network there is only the control plane.
void AddNetworkScenarios(std::vector<Scenario>* all) {
  for (const char* role : {"decode", "prefill", "orchestrator", "router"}) {
    for (const Fault fault : NetworkFaults()) {
      const bool data = NetworkFaultOf(fault)->plane != Plane::kControl;
      const bool any = fault == Fault::kDelay || fault == Fault::kLoss;
      if (std::string_view(role) == "orchestrator" && data && !any) continue;
      all->push_back(One(fault, role, NetworkSummary(fault, role)));
    }
  }
}

const char* TextOf(Moment moment) {
  return moment == Moment::kHandoff ? "while prompts are handed from prefill to decode instances"
         : moment == Moment::kBatch ? "while a batch is computed"
         : moment == Moment::kBind  ? "while two decode instances are bound into a group"
                                    : "while a group of two decode instances is released";
}

const char* SignalOf(Fault fault) {
  return fault == Fault::kKill   ? "SIGKILL"
         : fault == Fault::kStop ? "SIGSTOP, then SIGCONT,"
                                 : "SIGTERM";
}

Scenario At(Moment moment, Fault fault, const std::string& role) {
  return {.name = absl::StrCat(NameOf(moment), "-", NameOf(fault), "-", role),
          .summary = absl::StrCat(SignalOf(fault), " to a process of the role ", role, " ",
                                  TextOf(moment), "."),
          .play = Play::kOne,
          .fault = fault,
          .role = role,
          .moment = moment,
          .in_all = false};
}

std::vector<Scenario> MakeScenarios() {
  std::vector<Scenario> all = {
      {.name = "none",
       .summary = "The load without a fault; it is played before the others.",
       .play = Play::kNothing,
       .role = ""}};
  for (const char* role : {"decode", "prefill", "orchestrator", "router"}) {
    all.push_back(One(
        Fault::kKill, role,
        absl::StrCat("SIGKILL to a process of the role ", role, ", which is then started again.")));
    all.push_back(One(Fault::kStop, role,
                      absl::StrCat("SIGSTOP to a process of the role ", role, ", then SIGCONT.")));
    all.push_back(One(
        Fault::kTerm, role,
        absl::StrCat("SIGTERM to a process of the role ", role, ", which is then started again.")));
  }
  AddNetworkScenarios(&all);
  for (const Moment moment : {Moment::kHandoff, Moment::kBind, Moment::kRelease, Moment::kBatch}) {
    for (const char* role : {"decode", "prefill", "orchestrator", "router"}) {
      for (const Fault fault : {Fault::kKill, Fault::kStop}) all.push_back(At(moment, fault, role));
      // A process that leaves while it is still wanted.
      const bool leaves = moment == Moment::kHandoff || moment == Moment::kBatch;
      if (leaves) all.push_back(At(moment, Fault::kTerm, role));
    }
  }
  all.push_back(One(Fault::kKill, "standby",
                    "SIGKILL to an orchestrator that stands by, which is then started again."));
  all.push_back({.name = "scale-in-decode",
                 .summary = "SIGTERM to a process of the role decode, which is started again when "
                            "all streams have ended.",
                 .play = Play::kOne,
                 .fault = Fault::kTerm,
                 .role = "decode",
                 .stays_away = true});
  all.push_back({.name = "restart-each",
                 .summary = "SIGTERM to every process, one after another, --rounds times; each is "
                            "started again.",
                 .play = Play::kEach,
                 .fault = Fault::kTerm,
                 .role = ""});
  all.push_back({.name = "random",
                 .summary = "A process and a fault by chance, every --fault-every-s seconds for "
                            "--duration-s seconds.",
                 .play = Play::kRandom,
                 .fault = Fault::kKill,
                 .role = "",
                 .in_all = false});
  return all;
}

}  // namespace

const char* NameOf(Fault fault) {
  switch (fault) {
    case Fault::kKill:
      return "kill";
    case Fault::kStop:
      return "stop";
    case Fault::kTerm:
      return "term";
    case Fault::kPartitionControl:
      return "partition-control";
    case Fault::kPartitionData:
      return "partition-data";
    case Fault::kPartitionBoth:
      return "partition-both";
    case Fault::kOnewayControlIn:
      return "oneway-control-in";
    case Fault::kOnewayControlOut:
      return "oneway-control-out";
    case Fault::kOnewayDataIn:
      return "oneway-data-in";
    case Fault::kOnewayDataOut:
      return "oneway-data-out";
    case Fault::kDelay:
      return "delay";
    case Fault::kLoss:
      return "loss";
  }
  return "unknown";
}

const char* NameOf(Moment moment) {
  switch (moment) {
    case Moment::kAny:
      break;
    case Moment::kBind:
      return "bind";
    case Moment::kRelease:
      return "release";
    case Moment::kHandoff:
      return "handoff";
    case Moment::kBatch:
      return "batch";
  }
  return "";
}

bool Asks(std::string_view name, const Scenario& scenario) {
  if (name == "all") return scenario.in_all;
  return name == scenario.name ||
         (scenario.moment != Moment::kAny && name == NameOf(scenario.moment));
}

Choice Choose(const std::vector<std::string>& names,
              const std::function<absl::Status(Fault)>& allows) {
  const auto named = [&](const Scenario& scenario) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return name != "all" && Asks(name, scenario);
    });
  };
  const bool all = std::find(names.begin(), names.end(), "all") != names.end();
  Choice choice;
  std::optional<absl::Status> network;  // none: not yet asked
  int64_t left_out = 0;
  for (const Scenario& one : Scenarios()) {
    const bool first = one.play == Play::kNothing;  // what the others are compared with
    if (first || named(one)) {
      choice.scenarios.push_back(&one);
      continue;
    }
    if (!all || !one.in_all) continue;
    const bool on_network = NetworkFaultOf(one.fault).has_value();
    if (on_network && !network) network = allows(one.fault);
    if (on_network && !network->ok()) {
      ++left_out;
    } else {
      choice.scenarios.push_back(&one);
    }
  }
  if (left_out > 0) {
    choice.left_out = absl::StrCat("The ", left_out, " scenarios of the network are left out: ",
                                   std::string(network->message()), ".");
  }
  return choice;
}

bool Lasts(Fault fault) { return fault == Fault::kStop || NetworkFaultOf(fault).has_value(); }

const std::vector<Scenario>& Scenarios() {
  static const auto* all = new std::vector<Scenario>(MakeScenarios());
  return *all;
}

const Scenario* FindScenario(std::string_view name) {
  for (const Scenario& one : Scenarios()) {
    if (one.name == name) return &one;
  }
  return nullptr;
}

}  // namespace skein::services::chaos
