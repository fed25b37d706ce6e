#include "services/skeinctl/chaos/network_fault.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace skein::services::chaos {
namespace {

constexpr double kDelayS = 0.05;
constexpr double kLoss = 0.05;

const char* TextOf(Plane plane) {
  return plane == Plane::kControl ? "orchestrators"
         : plane == Plane::kData  ? "other workers and routers"
                                  : "the rest of the cluster";
}

}  // namespace

const std::vector<Fault>& NetworkFaults() {
  static const auto* all = new std::vector<Fault>{Fault::kPartitionControl,
                                                  Fault::kPartitionData,
                                                  Fault::kPartitionBoth,
                                                  Fault::kOnewayControlIn,
                                                  Fault::kOnewayControlOut,
                                                  Fault::kOnewayDataIn,
                                                  Fault::kOnewayDataOut,
                                                  Fault::kDelay,
                                                  Fault::kLoss};
  return *all;
}

std::optional<NetworkFault> NetworkFaultOf(Fault fault) {
  switch (fault) {
    case Fault::kPartitionControl:
      return NetworkFault{.plane = Plane::kControl, .loss = 1};
    case Fault::kPartitionData:
      return NetworkFault{.plane = Plane::kData, .loss = 1};
    case Fault::kPartitionBoth:
      return NetworkFault{.plane = Plane::kBoth, .loss = 1};
    case Fault::kOnewayControlIn:
      return NetworkFault{.plane = Plane::kControl, .out = false, .loss = 1};
    case Fault::kOnewayControlOut:
      return NetworkFault{.plane = Plane::kControl, .in = false, .loss = 1};
    case Fault::kOnewayDataIn:
      return NetworkFault{.plane = Plane::kData, .out = false, .loss = 1};
    case Fault::kOnewayDataOut:
      return NetworkFault{.plane = Plane::kData, .in = false, .loss = 1};
    case Fault::kDelay:
      return NetworkFault{.delay_s = kDelayS};
    case Fault::kLoss:
      return NetworkFault{.loss = kLoss};
    case Fault::kKill:
    case Fault::kStop:
    case Fault::kTerm:
      return std::nullopt;
  }
  return std::nullopt;
}

std::string NetworkSummary(Fault fault, const std::string& role) {
  const auto what = NetworkFaultOf(fault);
  if (!what) return "";
  const std::string whose = absl::StrCat("a process of the role ", role);
  const std::string peers = TextOf(role == "orchestrator" ? Plane::kBoth : what->plane);
  const std::string between = absl::StrCat("between ", whose, " and ", peers);
  if (what->delay_s > 0) {
    return absl::StrFormat("Each packet %s is %g ms late.", between, what->delay_s * 1000);
  }
  if (what->loss < 1) {
    return absl::StrFormat("%g %% of the packets %s are lost.", what->loss * 100, between);
  }
  if (what->in && what->out) return absl::StrCat("Nothing gets through ", between, ".");
  return what->in
             ? absl::StrCat("Nothing gets from ", peers, " to ", whose, "; the way back works.")
             : absl::StrCat("Nothing gets from ", whose, " to ", peers, "; the way back works.");
}

}  // namespace skein::services::chaos
