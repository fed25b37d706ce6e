// What a process tells of its build, and whether two processes may speak with each other. Rules and
// the table of revisions: docs/compatibility.md.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace skein::scheduler {

// Revisions of the protocol of proto/ that a process understands. {0, 0} is 0.3.0, which tells
// none.
struct ProtocolRange {
  uint32_t oldest = 0;
  uint32_t newest = 0;
  bool operator==(const ProtocolRange&) const = default;
};

// Of this build. `newest` grows with a change that one side makes only if the other side
// understands it; `oldest` grows one minor version after the versions below it were deprecated.
inline constexpr ProtocolRange kProtocol{0, 2};

struct PeerBuild {
  std::string version;  // empty: it tells none
  ProtocolRange protocol;
  bool operator==(const PeerBuild&) const = default;
};

// The highest revision that both understand. REQUIRES CheckProtocol.
constexpr uint32_t CommonRevision(const ProtocolRange& a, const ProtocolRange& b) {
  return std::min(a.newest, b.newest);
}

// FAILED_PRECONDITION "protocol: the router (0.6.0) speaks revisions 2 to 3, the orchestrator
// (0.4.0) 0 to 1; upgrade the orchestrator (docs/compatibility.md)" when they have none in common.
inline absl::Status CheckProtocol(const PeerBuild& a, std::string_view a_name, const PeerBuild& b,
                                  std::string_view b_name) {
  const ProtocolRange& of_a = a.protocol;
  const ProtocolRange& of_b = b.protocol;
  if (of_a.oldest <= of_b.newest && of_b.oldest <= of_a.newest) return absl::OkStatus();
  const auto version_of = [](const PeerBuild& build) {
    return build.version.empty() ? std::string("a version that it does not tell") : build.version;
  };
  const std::string name_a(a_name);
  const std::string name_b(b_name);
  return absl::FailedPreconditionError(absl::StrCat(
      "protocol: the ", name_a, " (", version_of(a), ") speaks revisions ", of_a.oldest, " to ",
      of_a.newest, ", the ", name_b, " (", version_of(b), ") ", of_b.oldest, " to ", of_b.newest,
      "; upgrade the ", of_a.newest < of_b.oldest ? name_a : name_b, " (docs/compatibility.md)"));
}

}  // namespace skein::scheduler
