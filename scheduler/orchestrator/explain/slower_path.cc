#include "scheduler/orchestrator/explain/slower_path.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace skein::scheduler {
namespace {

// What the transport itself says: "tcp (not cuda-ipc: another user)".
std::string RefusalIn(const std::string& transport) {
  const size_t begin = transport.find(" (not ");
  if (begin == std::string::npos || transport.back() != ')') return "";
  return transport.substr(begin + 2, transport.size() - begin - 3);
}

std::string WhyThroughHost(const HandoffPath& path, const std::string& nodes) {
  if (const std::string refusal = RefusalIn(path.transport); !refusal.empty()) return refusal;
  if (!nodes.empty()) return nodes;
  return "one instance runs with --handoff-path=host, or cannot open the device memory of the "
         "other";
}

std::string WhyTcp(const std::string& nodes) {
  if (!nodes.empty()) return absl::StrCat(nodes, ", and UCX found nothing faster between them");
  return "the two processes share no memory: UCX_TLS of one lacks shm, or they do not share "
         "/dev/shm";
}

}  // namespace

std::vector<Degraded> SlowerBy(const HandoffPath& path) {
  std::vector<Degraded> reasons;
  if (path.path == "host-staged") reasons.push_back(Degraded::kHandoffHostMemory);
  if (absl::StartsWith(path.transport, "tcp")) reasons.push_back(Degraded::kHandoffTcp);
  if (path.staging_buffer) reasons.push_back(Degraded::kHandoffStagingBuffer);
  return reasons;
}

std::string WhySlower(const HandoffPath& path, const std::string& prefill_node,
                      const std::string& decode_node) {
  std::string nodes;
  if (!prefill_node.empty() && !decode_node.empty() && prefill_node != decode_node) {
    nodes = absl::StrCat("the instances are on different nodes (", prefill_node, " and ",
                         decode_node, ")");
  }
  std::vector<std::string> why;
  for (const Degraded reason : SlowerBy(path)) {
    if (reason == Degraded::kHandoffHostMemory) {
      why.push_back(absl::StrCat("through the host's memory: ", WhyThroughHost(path, nodes)));
    } else if (reason == Degraded::kHandoffTcp) {
      why.push_back(absl::StrCat("over TCP: ", WhyTcp(nodes)));
    } else {
      why.push_back("through a staging buffer: the decode instance runs with --handoff=staging");
    }
  }
  return absl::StrJoin(why, "; ");
}

}  // namespace skein::scheduler
